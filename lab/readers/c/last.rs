// The counterpart of last.h in Rust, for chainxx.cc and last_test.go.
use std::os::raw::c_char;
use std::panic;

#[inline(never)]
#[no_mangle]
pub fn last_panic(v: &[u8]) -> u8 {
    v[7]
}

#[no_mangle]
pub extern "C" fn rust_scene(check: extern "C" fn(*const c_char)) {
    panic::set_hook(Box::new(move |_| check(b"Rust panic\0".as_ptr() as *const c_char)));
    let r = panic::catch_unwind(|| last_panic(&std::env::args().map(|a| a.len() as u8).collect::<Vec<u8>>()));
    assert!(r.is_err());
}
