//! A policy begins with its effect; there is no other beginning.

use bursar::{Policy, Runtime};

fn main() {
    let runtime = Runtime::builder().resource("db", 1).build().unwrap();
    let _ = runtime.contract("load", Policy::default().claim("db", 1));
}
