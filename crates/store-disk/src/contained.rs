//! Panics that are an answer. The engine of the base asserts in places where it meets bytes that it did not write; what follows
//! is an error of that target alone. Whoever ends the process on a panic asks `is_contained` first.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Whether a panic of this thread is caught, and told as an error of a store.
pub fn is_contained() -> bool {
    DEPTH.get() > 0
}

/// Calls what may panic.
///
/// # Errors
/// What the panic said. Nothing that `call` was changing may be used any more.
pub(crate) fn contain<T>(call: impl FnOnce() -> T) -> Result<T, String> {
    DEPTH.set(DEPTH.get() + 1);
    let called = catch_unwind(AssertUnwindSafe(call));
    DEPTH.set(DEPTH.get() - 1);
    called.map_err(|payload| said(&*payload))
}

fn said(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_inside_only() {
        assert!(!is_contained());
        assert_eq!(contain(is_contained), Ok(true));
        let inner = || contain(|| panic!("page {}", 7));
        let outer = contain(|| (inner(), is_contained()));
        assert_eq!(outer, Ok((Err::<(), _>("page 7".to_owned()), true)));
        assert!(!is_contained());
    }
}
