#![forbid(unsafe_code)]
use bursar::*;
use std::time::*;
use std::sync::Arc;
use std::hint::black_box;
fn time(name: &str, n: u32, mut f: impl FnMut(u32)) { let mut best=f64::MAX; for _ in 0..7 { let t=Instant::now(); f(n); best=best.min(t.elapsed().as_nanos() as f64/n as f64);} println!("{name:40} {best:8.1} ns"); }
fn main(){
 let rt=tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
 let r=Runtime::builder().resource("a",8).resource("b",8).build().unwrap();
 let one=r.contract("one",Policy::pure().claim("a",1)).unwrap();
 let two=r.contract("two",Policy::pure().claim("a",1).claim("b",1)).unwrap();
 let tmo=r.contract("tmo",Policy::pure().claim("a",1).timeout(Duration::from_secs(1))).unwrap();
 let sem=Arc::new(tokio::sync::Semaphore::new(8));
 let n=1_000_000;
 for _ in 0..2 {
 time("bare semaphore",n,|n| rt.block_on(tokio::task::unconstrained(async{ for i in 0..n { let _p=sem.acquire().await.unwrap(); black_box(i);} })));
 time("run one",n,|n| rt.block_on(tokio::task::unconstrained(async{ for i in 0..n { let v=one.run(|| async {Ok::<_,Failure<()>>(black_box(i))}).await; let _=black_box(v);} })));
 time("run two",n,|n| rt.block_on(tokio::task::unconstrained(async{ for i in 0..n { let v=two.run(|| async {Ok::<_,Failure<()>>(black_box(i))}).await; let _=black_box(v);} })));
 time("run timeout",n,|n| rt.block_on(tokio::task::unconstrained(async{ for i in 0..n { let v=tmo.run(|| async {Ok::<_,Failure<()>>(black_box(i))}).await; let _=black_box(v);} })));
 time("keyed",n,|n| rt.block_on(tokio::task::unconstrained(async{ for i in 0..n { let mut c=one.with().key("customer"); let v=c.run(|_| async {Ok::<_,Failure<()>>(black_box(i))}).await; let _=black_box(v);} })));
 }
 let f=one.run(|| async {Ok::<_,Failure<()>>(())}); println!("size {}", size_of_val(&f));
 let f=tmo.run(|| async {Ok::<_,Failure<()>>(())}); println!("size {}", size_of_val(&f));
 let mut c=one.with(); println!("call {}", size_of_val(&c)); let f=c.run(|_| async {Ok::<_,Failure<()>>(())}); println!("size {}", size_of_val(&f));
}
