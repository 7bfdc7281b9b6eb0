//! A library for C.

/// Returns twice x.
#[no_mangle]
pub extern "C" fn double_it(x: i32) -> i32 {
    inner::double(x)
}
