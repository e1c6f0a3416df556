use super::*;
use indicatif::TermLike;
use std::io::{self, IsTerminal};
use std::sync::Mutex;

/// A terminal that remembers what was written to it.
#[derive(Clone, Debug, Default)]
struct Terminal(Arc<Mutex<String>>);

impl Terminal {
    fn written(&self) -> String {
        self.0.lock().expect("nobody panics").clone()
    }
}

impl TermLike for Terminal {
    fn width(&self) -> u16 {
        120
    }

    fn move_cursor_up(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_down(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_right(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_left(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn write_line(&self, words: &str) -> io::Result<()> {
        self.write_str(words)
    }

    fn write_str(&self, words: &str) -> io::Result<()> {
        self.0.lock().expect("nobody panics").push_str(words);
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }
}

const NOTHING: Seen = Seen {
    unit: "files",
    goal: Goal { items: None, bytes: None },
    items: 0,
    bytes: 0,
    items_per_second: 0.0,
    bytes_per_second: 0.0,
    left: None,
};

#[test]
fn what_is_done_is_said_with_its_goal_its_rate_and_the_time_left() {
    let seen = Seen {
        goal: Goal { items: Some(5000), bytes: Some(40 << 20) },
        items: 1200,
        bytes: 12 << 20,
        items_per_second: 400.0,
        bytes_per_second: f64::from(4 << 20),
        left: Some(Duration::from_secs(7)),
        ..NOTHING
    };
    let words = seen.words();
    assert_eq!(words, "1200 of 5000 files, 12.00 MiB of 40.00 MiB, 400.0/s, 4.00 MiB/s, 7 seconds left");
    let by_items = Seen { goal: Goal::items(5000), ..seen };
    assert_eq!(by_items.words(), "1200 of 5000 files, 12.00 MiB, 400.0/s, 4.00 MiB/s, 7 seconds left");
}

#[test]
fn nothing_is_said_that_nobody_knows() {
    assert_eq!(NOTHING.words(), "0 files, 0.0/s");
    let seen = Seen { items: 8, items_per_second: 2.0, ..NOTHING };
    assert_eq!(seen.words(), "8 files, 2.0/s");
    let stands = Seen { goal: Goal::items(8), left: Some(Duration::ZERO), ..NOTHING };
    assert_eq!(stands.words(), "0 of 8 files, 0.0/s");
}

#[test]
fn a_terminal_shows_what_several_threads_have_done_together() {
    let terminal = Terminal::default();
    let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
    let progress = Progress::draw(target, "copying".to_owned(), "files", Goal::items(3));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| progress.add(1, 100));
        }
    });
    progress.at("the last one");
    progress.bar.force_draw();
    let written = terminal.written();
    assert!(written.contains("copying, the last one: 3 of 3 files, 300 B, "), "{written}");
    drop(progress);
}

#[test]
fn what_is_over_at_once_is_drawn_once() {
    let terminal = Terminal::default();
    let target = ProgressDrawTarget::term_like(Box::new(terminal.clone()));
    let progress = Progress::draw(target, "copying".to_owned(), "files", Goal::items(2));
    progress.set(2, 4096);
    drop(progress);
    let written = terminal.written();
    assert!(
        written.contains("copying: 2 of 2 files, 4.00 KiB, ") && written.matches("/s").count() >= 2,
        "{written}"
    );
}

#[test]
fn what_is_no_terminal_gets_nothing() {
    let progress = Progress::begin("copying", "files", Goal::default());
    progress.add(1, 1);
    assert_eq!(progress.bar.is_hidden(), !io::stderr().is_terminal());
    assert_eq!(progress.done.items.load(Ordering::Relaxed), 1);
}
