//! What the reads of a file have in common, whoever makes them: all openers share one detector, for they share one page cache.
//!
//! The kernel reads ahead by itself, and around page faults: a request for as much as its window may be about one page of it.
//! It may be refused: nobody is told, and the kernel then asks for the one page that it needs, which says where faults
//! really are. What a stride leaves out, and what is around pages at random, is so never read.

use base::Extent;
use std::collections::VecDeque;

const PAGE_BYTES: u64 = 4096;
/// Runs of reads that are remembered: as many streams may be read side by side.
const RUN_COUNT_MAX: usize = 32;
/// A reader of a run may be so far behind another one.
const BEHIND_BYTES: u64 = 2 << 20;
/// Requests of a stream may pass each other so far.
const STREAM_BEFORE_BYTES: u64 = 128 << 10;
/// Other reads that follow each other leave out no more than this.
const GAP_BYTES: u64 = 16 << 10;
/// As long as this a run is a stream, if it did not begin where the file does.
const STREAM_BYTES_MIN: u64 = 128 << 10;
/// A first read of a file that is as long as this is expected to be followed by others.
const FIRST_BYTES_MIN: u64 = 64 << 10;
/// Chunks farther apart are no stride.
const DISTANCE_BYTES_MAX: u64 = 64 << 20;
/// Distances in a row that make a stride.
const STRIDE_COUNT_MIN: u32 = 3;
/// So many reads elsewhere in a row end a stride. One is of somebody else.
const ELSEWHERE_COUNT_MAX: u32 = 3;
/// Chunks that are fetched before they are read.
const CHUNKS_AHEAD_MAX: u64 = 16;
/// The end of chunks is believed when it was confirmed so often, and is looked for in one of so many from then on.
const CONFIRMED_COUNT_MIN: u32 = 2;
const CONFIRMED_CHUNK_COUNT: u32 = 16;
/// Refused requests that are remembered.
const REFUSED_COUNT_MAX: usize = 64;
/// After a refusal that hit a read(2), requests of the kernel are about what they name, for as many reads.
const PLAIN_READ_COUNT: u32 = 4096;
/// So many in a row are read(2)'s, though each may be about a page that is the first by chance.
const FIRST_PAGE_COUNT_MIN: u32 = 8;

/// A stream is pushed to when so much of it was read without a gap: strides begin as streams do.
const PUSHED_FROM_BYTES: u64 = 1 << 20;
/// The last pages of so many bytes are left out of what is pushed: they are asked for when the stream comes there. Strides, which mostly
/// begin at round numbers, pass by.
const SIGN_DISTANCE_BYTES: u64 = 2 << 20;

/// The next place at or behind an offset that is left out of what is pushed: half of what the kernel asks for around a fault, which is
/// what it does not have then.
pub(crate) fn sign_behind(offset: u64, kernel_window_bytes: u64) -> u64 {
    let left_out = kernel_window_bytes / 2;
    let end = (offset.saturating_add(left_out) / SIGN_DISTANCE_BYTES + 1).saturating_mul(SIGN_DISTANCE_BYTES);
    end - left_out.min(SIGN_DISTANCE_BYTES)
}

/// What the file and its mount allow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope {
    /// As much does the kernel ask for around a fault; 0: not known, and nothing is refused.
    pub(super) kernel_window_bytes: u64,
    /// What is fetched for a stream begins and ends at multiples of this.
    pub(super) window_bytes: u64,
    /// How far ahead of a stream.
    pub(super) ahead_bytes: u64,
    /// Size of the file as far as it is known.
    pub(super) size_bytes: u64,
    /// Files up to this size are fetched as a whole.
    pub(super) whole_bytes_max: u64,
    /// What the kernel was given of what is around the read, and does not ask for.
    pub(super) pushed: Extent,
}

/// What to do for a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Ask for what it asks for.
    Plain,
    /// Not even that: it is about one page of it.
    Refuse,
    /// Have `now`, which holds what it asks for, and begin to have `ahead`.
    Fetch { now: Extent, ahead: Vec<Extent> },
}

/// Reads that follow each other.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// The kernel may ask for so much before `start`: it asks around a fault, in parts if it has some of that.
    from: u64,
    start: u64,
    next: u64,
    read_count: u32,
    /// Who has read there last; 0: nobody knows.
    reader: u32,
    /// Others have, too.
    is_shared: bool,
}

impl Run {
    fn is_continued_by(&self, extent: Extent, scope: Scope) -> bool {
        // The first requests of a file pass each other too.
        let passing = STREAM_BEFORE_BYTES.max(2 * scope.kernel_window_bytes);
        let before = if self.is_stream() || self.start == 0 { passing } else { GAP_BYTES };
        let from = self.next.saturating_sub(BEHIND_BYTES).max(self.from);
        // The kernel does not ask for what it was given, up to the next sign.
        let is_next_pushed = scope.pushed.start <= self.next.saturating_add(before);
        let pushed_end = scope.pushed.end.min(sign_behind(self.next, scope.kernel_window_bytes));
        let next = if is_next_pushed { self.next.max(pushed_end) } else { self.next };
        extent.start >= from && extent.start <= next.saturating_add(before)
    }

    fn note_reader(&mut self, reader: u32) {
        let former = std::mem::replace(&mut self.reader, reader);
        self.is_shared |= former != 0 && reader != 0 && former != reader;
    }

    fn is_stream(&self) -> bool {
        let byte_count = self.next - self.start;
        self.read_count >= 2 && (self.start == 0 || byte_count >= STREAM_BYTES_MIN)
    }
}

/// Runs that begin at equal distances.
#[derive(Clone, Copy, Debug)]
struct Stride {
    distance: u64,
    /// Bytes from the first one of a run that are read.
    chunk: u64,
    count: u32,
    /// Chunks in a row whose end was looked for and was where it was thought to be.
    confirmed_count: u32,
    /// Runs in a row that began where no chunk does.
    elsewhere_count: u32,
}

impl Stride {
    fn is_known(&self) -> bool {
        self.count >= STRIDE_COUNT_MIN
    }

    /// Where a chunk ends is seen only when what the kernel asks for there is refused: it reads ahead beyond it.
    fn is_end_in_doubt(&self) -> bool {
        self.confirmed_count < CONFIRMED_COUNT_MIN || self.count.is_multiple_of(CONFIRMED_CHUNK_COUNT)
    }
}

#[derive(Clone, Copy, Debug)]
struct Refused {
    extent: Extent,
    /// The page that is asked for then says what the request was about.
    is_lesson: bool,
}

#[derive(Debug, Default)]
pub(super) struct Pattern {
    /// The latest last.
    runs: VecDeque<Run>,
    stride: Option<Stride>,
    refused: VecDeque<Refused>,
    /// The last refusal that told showed a page fault.
    is_faulting: bool,
    /// Refusals in a row after which the first page was asked for.
    first_page_count: u32,
    is_fetched_whole: bool,
    plain_reads_left: u32,
}

impl Pattern {
    /// A read of the kernel, as it comes.
    pub(super) fn on_read(&mut self, extent: Extent, scope: Scope) -> Verdict {
        self.plain_reads_left = self.plain_reads_left.saturating_sub(1);
        self.learn_from_refusal(extent, scope);
        if scope.size_bytes <= scope.whole_bytes_max {
            let is_first = !std::mem::replace(&mut self.is_fetched_whole, true);
            return whole(extent, scope, is_first);
        }
        match self.continued(extent, scope) {
            Some(continued) => self.on_continued(continued, extent, scope),
            None => {
                let is_around = self.is_around(extent, scope);
                match self.expected_near(extent, scope) {
                    // What is before the page that is meant costs less than to ask for each page that follows it.
                    Some(start) if is_around || self.is_faulting => self.on_new_run(extent, start, scope),
                    _ if is_around => self.refuse(extent, true),
                    _ => self.on_new_run(extent, extent.start, scope),
                }
            }
        }
    }

    /// How far the nearest stream has come of those that have come to this offset, or farther.
    pub(super) fn stream_beyond(&self, offset: u64) -> Option<u64> {
        let streams = self.runs.iter().filter(|run| run.is_stream() && run.next >= offset);
        streams.map(|run| run.next).min()
    }

    /// Whether the last read, which was a thread's, is one of a stream that has lasted and that several threads read.
    pub(super) fn is_in_shared_stream(&mut self, reader: u32) -> bool {
        let is_stride = self.stride.is_some_and(|stride| stride.is_known());
        let Some(run) = self.runs.back_mut() else { return false };
        run.note_reader(reader);
        !is_stride && run.is_shared && run.is_stream() && run.next - run.start >= PUSHED_FROM_BYTES
    }

    /// The first page that is asked for after a refusal: one inside was faulted on; the first one is read(2)'s.
    fn learn_from_refusal(&mut self, extent: Extent, scope: Scope) {
        let asked =
            self.refused.iter_mut().find(|refused| refused.is_lesson && refused.extent.contains(extent));
        let Some(refused) = asked else { return };
        refused.is_lesson = false;
        let start = refused.extent.start;
        if self.runs.iter().any(|run| run.start < start && start <= run.next) {
            // It has turned out to be the next of others: two requests had passed each other.
            return;
        }
        let is_first = extent.start == refused.extent.start;
        let is_window = refused.extent.byte_count() == scope.kernel_window_bytes;
        self.first_page_count = if is_first { self.first_page_count + 1 } else { 0 };
        if !is_first {
            self.is_faulting = true;
            self.plain_reads_left = 0;
        } else if is_window || self.first_page_count >= FIRST_PAGE_COUNT_MIN {
            // The rest of a window, of which the kernel had a part, says little: it may begin with the page.
            self.is_faulting = false;
            self.plain_reads_left = PLAIN_READ_COUNT;
        }
    }

    fn was_refused(&self, extent: Extent) -> bool {
        self.refused.iter().any(|refused| refused.extent.overlaps(extent))
    }

    fn refuse(&mut self, extent: Extent, is_lesson: bool) -> Verdict {
        // The kernel goes on from what it has asked for around a page, where nobody may have been yet.
        let follows_another = self.refused.iter().any(|refused| refused.extent.end == extent.start);
        let is_lesson = is_lesson && !follows_another;
        if self.refused.len() == REFUSED_COUNT_MAX {
            self.refused.pop_front();
        }
        self.refused.push_back(Refused { extent, is_lesson });
        Verdict::Refuse
    }

    /// Whether a request that follows nothing may be about one page in its middle.
    fn is_around(&self, extent: Extent, scope: Scope) -> bool {
        let byte_count = extent.byte_count();
        let is_like_one =
            byte_count == scope.kernel_window_bytes || self.is_faulting && byte_count > PAGE_BYTES;
        // What was refused once is not refused again, in no part of it.
        scope.kernel_window_bytes > 0
            && is_like_one
            && byte_count > PAGE_BYTES
            && extent.start > 0
            && self.plain_reads_left == 0
            && !self.was_refused(extent)
    }

    /// The run that a read continues, and where it had ended.
    fn continued(&mut self, extent: Extent, scope: Scope) -> Option<(Run, u64)> {
        let at = self.runs.iter().rposition(|run| run.is_continued_by(extent, scope))?;
        let mut run = self.runs.remove(at)?;
        let former_next = run.next;
        run.next = run.next.max(extent.end);
        run.read_count += 1;
        self.runs.push_back(run);
        Some((run, former_next))
    }

    fn on_continued(&mut self, (run, former_next): (Run, u64), extent: Extent, scope: Scope) -> Verdict {
        match self.stride.filter(Stride::is_known) {
            Some(stride) if run.next - run.start > 2 * stride.chunk.max(scope.kernel_window_bytes) => {
                // It does not end where the others did.
                self.stride = None;
                stream(run, extent, scope)
            }
            Some(stride) => self.in_chunk((run, former_next), stride, extent, scope),
            None if run.is_stream() => stream(run, extent, scope),
            None => Verdict::Plain,
        }
    }

    fn in_chunk(
        &mut self,
        (run, former_next): (Run, u64),
        stride: Stride,
        extent: Extent,
        scope: Scope,
    ) -> Verdict {
        let end = run.start.saturating_add(stride.chunk);
        let doubtful = if stride.is_end_in_doubt() { scope.kernel_window_bytes } else { 0 };
        let is_beyond_need = scope.kernel_window_bytes > 0
            && extent.byte_count() > PAGE_BYTES
            && extent.end > end.saturating_sub(doubtful)
            && !self.was_refused(extent);
        if is_beyond_need {
            // The run has not come so far by this.
            if let Some(run) = self.runs.back_mut() {
                run.next = former_next;
            }
            return self.refuse(extent, false);
        }
        if extent.end <= end { self.chunks(run, stride, scope) } else { Verdict::Plain }
    }

    /// What the kernel asks for in front of the page that is meant.
    fn before_bytes(&self, scope: Scope) -> u64 {
        if self.is_faulting { scope.kernel_window_bytes / 2 } else { 0 }
    }

    /// Where the next chunk of a stride begins, if that is what an extent is about.
    fn expected_near(&self, extent: Extent, scope: Scope) -> Option<u64> {
        let stride = self.stride.filter(Stride::is_known)?;
        let last = extent.start.saturating_add(self.before_bytes(scope)).max(extent.end.saturating_sub(1));
        let mut starts = self.runs.iter().rev().map(|run| run.start.saturating_add(stride.distance));
        starts.find(|start| extent.start <= *start && *start <= last)
    }

    /// A read that follows no other; `start` is the first byte that is meant.
    fn on_new_run(&mut self, extent: Extent, start: u64, scope: Scope) -> Verdict {
        let is_chunk = self.learn_stride(start);
        let start = if is_chunk { self.fault_within(extent, start, scope) } else { start };
        let before = if is_chunk { self.before_bytes(scope) } else { 0 };
        let from = start.saturating_sub(before).min(extent.start);
        let run =
            Run { from, start, next: extent.end.max(start), read_count: 1, reader: 0, is_shared: false };
        if self.runs.len() == RUN_COUNT_MAX {
            self.runs.pop_front();
        }
        self.runs.push_back(run);
        match self.stride {
            Some(stride) if is_chunk && stride.is_known() && extent.byte_count() <= stride.chunk => {
                self.chunks(run, stride, scope)
            }
            _ if extent.start == 0 && extent.byte_count() >= FIRST_BYTES_MIN => {
                Verdict::Fetch { now: rounded(extent, scope), ahead: Vec::new() }
            }
            _ => Verdict::Plain,
        }
    }

    /// Where a chunk begins that was thought to begin with the extent. A whole window of the kernel has its fault in the middle: what is
    /// in front of it was taken for the first of an earlier chunk, whose window came in parts.
    fn fault_within(&mut self, extent: Extent, start: u64, scope: Scope) -> u64 {
        let before = self.before_bytes(scope);
        match &mut self.stride {
            Some(stride) if before > 0 && extent == Extent::at(start, scope.kernel_window_bytes) => {
                (stride.chunk, stride.confirmed_count) = (stride.chunk.saturating_sub(before), 0);
                start + before
            }
            _ => start,
        }
    }

    /// The chunk that a run is in, and the next ones.
    fn chunks(&self, run: Run, stride: Stride, scope: Scope) -> Verdict {
        let before = self.before_bytes(scope);
        let byte_count = stride.chunk.saturating_add(before);
        let now = Extent::at(run.start, stride.chunk.max(run.next - run.start));
        let is_sure = stride.confirmed_count >= CONFIRMED_COUNT_MIN;
        let count_max = if is_sure { CHUNKS_AHEAD_MAX } else { 1 };
        let count = (scope.ahead_bytes / byte_count.max(1)).clamp(1, count_max);
        let nth = |number: u64| {
            let start = run.start.saturating_add(stride.distance.saturating_mul(number));
            Extent::at(start.saturating_sub(before), byte_count)
        };
        let ahead = (1..=count).map(nth).filter(|chunk| chunk.start < scope.size_bytes).collect();
        Verdict::Fetch { now, ahead }
    }

    /// -> whether a chunk of a stride begins there.
    fn learn_stride(&mut self, start: u64) -> bool {
        let follows = |stride: &Stride| {
            self.runs.iter().rev().find(|run| run.start.saturating_add(stride.distance) == start).copied()
        };
        if let Some(mut stride) = self.stride
            && let Some(before) = follows(&stride)
        {
            let chunk = before.next - before.start;
            if chunk != stride.chunk {
                stride.confirmed_count = 0;
            } else if stride.is_known() && stride.is_end_in_doubt() {
                stride.confirmed_count = stride.confirmed_count.saturating_add(1);
            }
            stride.chunk = chunk;
            stride.count = stride.count.saturating_add(1);
            stride.elsewhere_count = 0;
            self.stride = Some(stride);
            return true;
        }
        if let Some(stride) = self.stride.as_mut().filter(|stride| stride.is_known()) {
            stride.elsewhere_count += 1;
            if stride.elsewhere_count < ELSEWHERE_COUNT_MAX {
                return false;
            }
        }
        let before = self.runs.iter().rev().find(|run| run.start < start);
        let new = before.map(|run| Stride {
            distance: start - run.start,
            chunk: run.next - run.start,
            count: 1,
            confirmed_count: 0,
            elsewhere_count: 0,
        });
        self.stride = new.filter(|stride| stride.distance <= DISTANCE_BYTES_MAX);
        false
    }
}

fn rounded(extent: Extent, scope: Scope) -> Extent {
    rounded_to(extent, scope.window_bytes)
}

fn rounded_to(extent: Extent, window: u64) -> Extent {
    Extent::new(extent.start / window * window, extent.end.div_ceil(window).saturating_mul(window))
}

fn whole(extent: Extent, scope: Scope, is_first: bool) -> Verdict {
    let all = Extent::new(0, scope.size_bytes);
    if extent.contains(all) || extent.start >= all.end {
        return Verdict::Plain;
    }
    // What was handed on meanwhile would only be fetched again.
    let ahead = if is_first { vec![rounded(all, scope)] } else { Vec::new() };
    Verdict::Fetch { now: rounded(extent, scope), ahead }
}

fn stream(run: Run, extent: Extent, scope: Scope) -> Verdict {
    // A short one is soon over, as far as anybody can tell; one within the file may be the chunk of a stride.
    let byte_count = run.next - run.start;
    let window =
        if run.start == 0 { scope.window_bytes } else { scope.window_bytes.min(1 << byte_count.ilog2()) };
    let now = rounded_to(extent, window);
    let ahead_bytes = scope.ahead_bytes.min(2 * byte_count);
    let end = now.end.saturating_add(ahead_bytes).min(scope.size_bytes);
    let ahead = Extent::new(now.end, end);
    let ahead = if ahead.is_empty() { Vec::new() } else { vec![rounded_to(ahead, window)] };
    Verdict::Fetch { now, ahead }
}

#[cfg(test)]
mod tests;
