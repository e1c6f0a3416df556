//! Counts by size, for statistics.

/// Counts by size: which bucket is whose follows from how values are added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    pub buckets: Vec<u64>,
}

/// As many as Lustre has.
const LINEAR_BUCKET_COUNT: u64 = 32;

impl Histogram {
    /// By power of two: bucket i counts values in (2^(i-1), 2^i].
    pub fn add(&mut self, value: u64) {
        self.count((u64::BITS - (value.max(1) - 1).leading_zeros()) as usize);
    }

    /// One by one: bucket i counts the value i, the last one all that are greater too.
    pub fn add_linear(&mut self, value: u64) {
        self.count(value.min(LINEAR_BUCKET_COUNT - 1) as usize);
    }

    /// Places by power of two: bucket 0 counts the place 0, bucket i those in [2^(i-1), 2^i).
    pub fn add_place(&mut self, place: u64) {
        self.count((u64::BITS - place.leading_zeros()) as usize);
    }

    fn count(&mut self, bucket: usize) {
        if self.buckets.len() <= bucket {
            self.buckets.resize(bucket + 1, 0);
        }
        self.buckets[bucket] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_the_bucket_of_the_next_power_of_two() {
        let mut histogram = Histogram::default();
        for value in [0, 1, 2, 3, 4, 5] {
            histogram.add(value);
        }
        assert_eq!(histogram.buckets, [2, 1, 2, 1]);
        histogram.add(u64::MAX);
        assert_eq!((histogram.buckets.len(), histogram.buckets.iter().sum::<u64>()), (65, 7));
    }

    #[test]
    fn what_is_counted_one_by_one_ends_in_one_bucket() {
        let mut histogram = Histogram::default();
        for value in [0, 1, 31, 32, u64::MAX] {
            histogram.add_linear(value);
        }
        assert_eq!((histogram.buckets.len(), histogram.buckets[0], histogram.buckets[1]), (32, 1, 1));
        assert_eq!(histogram.buckets[31], 3);
    }

    #[test]
    fn places_begin_with_nought() {
        let mut histogram = Histogram::default();
        for place in [0, 1, 2, 3, 4] {
            histogram.add_place(place);
        }
        assert_eq!(histogram.buckets, [1, 1, 2, 1]);
    }
}
