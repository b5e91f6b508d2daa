//! Every form of a call, from everywhere a service calls from: a spawned task, an axum handler, `select!`, `join!`, a
//! static's fields, a boxed future, a trait object.
//!
//! A form is a macro, so that each place compiles it anew, with its own borrows.

#![allow(
    clippy::disallowed_methods,
    reason = "where a call is made from is the subject here"
)]

mod common;

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use bursar::{
    Attempt, BoxOperation, CallError, Classify, Contract, Failure, Handler, HandlerFn, Operation,
    Policy, Runtime, handler_fn,
};
use common::{Error, assert_idle};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What is rendered.
#[derive(Clone, Debug)]
struct Job {
    brand: String,
}

fn job() -> Job {
    Job {
        brand: "Alba".to_owned(),
    }
}

/// A handler with state, an `async fn` in its trait.
struct Render {
    suffix: String,
}

impl Handler<Job> for Render {
    type Output = usize;
    type Error = Error;

    async fn handle(&self, attempt: &Attempt, job: &Job) -> Result<usize, Failure<Error>> {
        tokio::task::yield_now().await;
        let page = format!("{}{}", job.brand, self.suffix);
        Ok(page.len() * attempt.number() as usize)
    }
}

async fn length(job: &Job) -> Result<usize, Failure<Error>> {
    tokio::task::yield_now().await;
    Ok(job.brand.len() + 1)
}

/// A provider that takes what it is given by reference.
async fn provider(text: &str, attempt: u32) -> Result<usize, Error> {
    tokio::task::yield_now().await;
    if attempt > 9 {
        return Err("too often");
    }
    Ok(text.len())
}

type Closure = fn(&Job) -> Pin<Box<dyn Future<Output = Result<usize, Failure<Error>>> + Send>>;

/// What a service keeps: every handle in a field of its own.
struct Service {
    runtime: Runtime,
    charge: Contract,
    render: Operation<Job, Render>,
    shared: Operation<Job, Arc<Render>>,
    by_closure: Operation<Job, HandlerFn<Closure>>,
    boxed: BoxOperation<Job, usize, Error>,
    all: Vec<BoxOperation<Job, usize, Error>>,
    dynamic: Vec<Box<dyn Renderer>>,
}

/// A service's own interface, which knows no handler's type.
trait Renderer: Send + Sync {
    fn render(
        &self,
        job: Job,
    ) -> Pin<Box<dyn Future<Output = Result<usize, CallError<Error>>> + Send + '_>>;
}

impl<H: Handler<Job, Output = usize, Error = Error>> Renderer for Operation<Job, H> {
    fn render(
        &self,
        job: Job,
    ) -> Pin<Box<dyn Future<Output = Result<usize, CallError<Error>>> + Send + '_>> {
        Box::pin(self.call(job))
    }
}

fn renderer() -> Render {
    Render {
        suffix: "!".to_owned(),
    }
}

impl Service {
    fn new() -> Self {
        let runtime = Runtime::builder().resource("worker", 64).build().unwrap();
        let policy = || Policy::pure().claim("worker", 1);
        let operation = |name| runtime.operation(name, policy(), renderer()).unwrap();
        let closure: Closure = |job| {
            let job = job.clone();
            Box::pin(async move { length(&job).await })
        };
        let by_function = runtime
            .operation("by function", policy(), handler_fn(length))
            .unwrap();
        Self {
            charge: runtime.contract("charge", policy()).unwrap(),
            render: operation("render").serialize_by(|job| job.brand.as_str()),
            shared: runtime
                .operation("shared", policy(), Arc::new(renderer()))
                .unwrap(),
            by_closure: runtime
                .operation("by closure", policy(), handler_fn(closure))
                .unwrap(),
            boxed: operation("boxed").boxed(),
            all: vec![
                operation("listed").boxed(),
                by_function.clone().boxed(),
                operation("keyed")
                    .serialize_with(|job| job.brand.len() as u64)
                    .boxed(),
            ],
            dynamic: vec![
                Box::new(operation("dynamic")),
                Box::new(by_function),
                Box::new(operation("boxed twice").boxed()),
            ],
            runtime,
        }
    }
}

/// The short form, borrowing what is around it.
macro_rules! short {
    ($service:ident) => {
        async {
            let text = String::from("short");
            $service
                .charge
                .run(|| async { provider(&text, 1).await.transient() })
                .await
                .unwrap()
        }
    };
}

/// The full form: key, bound and token, the handler lent its attempt and borrowing locals.
macro_rules! full {
    ($service:ident) => {
        async {
            let (customer, text) = (String::from("customer 7"), String::from("whole"));
            let token = std::future::pending::<()>();
            let mut call = $service
                .charge
                .with()
                .key(&customer)
                .within(Duration::from_secs(60))
                .until(token);
            let once = call
                .run(|attempt| async { provider(&text, attempt.number()).await.uncertain() })
                .await
                .unwrap();
            let again = call
                .run(|attempt: &Attempt| async {
                    provider(&text, attempt.number()).await.uncertain()
                })
                .await
                .unwrap();
            assert_eq!(once, again);
            once
        }
    };
}

/// The full form in one expression.
macro_rules! chained {
    ($service:ident) => {
        async {
            let text = String::from("chain");
            $service
                .charge
                .with()
                .key(7)
                .within(Duration::from_secs(60))
                .run(|attempt| async { provider(&text, attempt.number()).await.permanent() })
                .await
                .unwrap()
        }
    };
}

/// Async closures, in both forms.
macro_rules! closures {
    ($service:ident) => {
        async {
            let text = String::from("async");
            let short = $service
                .charge
                .run(async || provider(&text, 1).await.transient())
                .await
                .unwrap();
            let mut call = $service.charge.with().key("closure");
            let full = call
                .run(async |attempt| provider(&text, attempt.number()).await.transient())
                .await
                .unwrap();
            assert_eq!(short, full);
            full
        }
    };
}

/// The value with what the call holds, in both forms.
macro_rules! held {
    ($service:ident) => {
        async {
            let text = String::from("value");
            let (short, permit) = $service
                .charge
                .run_held(|| async { provider(&text, 1).await.transient() })
                .await
                .unwrap();
            drop(permit);
            let mut call = $service.charge.with().key("held");
            let (full, _permit) = call
                .run_held(|attempt| async { provider(&text, attempt.number()).await.transient() })
                .await
                .unwrap();
            assert_eq!(short, full);
            full
        }
    };
}

/// No handler at all.
macro_rules! admitted {
    ($service:ident) => {
        async {
            let first = $service.charge.admit().await.unwrap();
            let second = $service.charge.with().key("guard").admit().await.unwrap();
            assert_eq!(first.operation(), second.operation());
            provider("guard", 1).await.unwrap()
        }
    };
}

/// A handler that blocks, in both forms.
macro_rules! blocking {
    ($service:ident) => {
        async {
            let text = Arc::new(String::from("block"));
            let lent = Arc::clone(&text);
            let short = $service
                .charge
                .run_blocking(move |_| Ok::<_, Failure<Error>>(lent.len()))
                .await
                .unwrap();
            let mut call = $service.charge.with().key("blocking");
            let full = call
                .run_blocking(move |attempt| {
                    Ok::<_, Failure<Error>>(text.len() * attempt.number() as usize)
                })
                .await
                .unwrap();
            assert_eq!(short, full);
            full
        }
    };
}

/// A typed operation, serialized by its input.
macro_rules! typed {
    ($service:ident) => {
        async {
            let short = $service.render.call(job()).await.unwrap();
            let call = $service.render.with().within(Duration::from_secs(60));
            let full = call.call(job()).await.unwrap();
            let (held, _permit) = $service.shared.call_held(job()).await.unwrap();
            assert_eq!((short, full), (held, held));
            full
        }
    };
}

/// Functions and closures as handlers.
macro_rules! plain {
    ($service:ident) => {
        async {
            let policy = || Policy::pure().claim("worker", 1);
            let runtime = &$service.runtime;
            let by_function = runtime
                .operation("here", policy(), handler_fn(length))
                .unwrap();
            let suffix = String::from("!");
            let by_closure = runtime
                .operation(
                    "there",
                    policy(),
                    handler_fn(move |job: &Job| {
                        let text = job.brand.clone() + &suffix;
                        async move { provider(&text, 1).await.transient() }
                    }),
                )
                .unwrap();
            let one = by_function.call(job()).await.unwrap();
            let other = by_closure.call(job()).await.unwrap();
            let stored = $service.by_closure.call(job()).await.unwrap();
            assert_eq!((one, other), (stored, stored));
            stored
        }
    };
}

/// Operations whose handler's type is forgotten.
macro_rules! forgotten {
    ($service:ident) => {
        async {
            let mut last = $service.boxed.call(job()).await.unwrap();
            for operation in &$service.all {
                last = operation.call(job()).await.unwrap();
            }
            for renderer in &$service.dynamic {
                assert_eq!(renderer.render(job()).await.unwrap(), last);
            }
            last
        }
    };
}

/// One request over a socket of its own; the body of the answer.
async fn request(address: std::net::SocketAddr) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let head = "GET / HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    body.to_owned()
}

static SERVICE: LazyLock<Service> = LazyLock::new(Service::new);

macro_rules! in_every_place {
    ($($test:ident: $form:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            const FIVE: usize = 5;
            let service = Arc::new(Service::new());

            let spawned = {
                let service = Arc::clone(&service);
                tokio::spawn(async move { $form!(service).await })
            };
            assert_eq!(spawned.await.unwrap(), FIVE, "spawned");

            let selected = tokio::select! {
                () = std::future::pending() => 0,
                value = $form!(service) => value,
            };
            assert_eq!(selected, FIVE, "selected");
            let spawned = {
                let service = Arc::clone(&service);
                tokio::spawn(async move {
                    tokio::select! {
                        biased;
                        value = $form!(service) => value,
                        () = std::future::pending() => 0,
                    }
                })
            };
            assert_eq!(spawned.await.unwrap(), FIVE, "selected in a task");

            let spawned = {
                let service = Arc::clone(&service);
                tokio::spawn(async move { tokio::join!($form!(service), $form!(service)) })
            };
            assert_eq!(spawned.await.unwrap(), (FIVE, FIVE), "joined in a task");

            let boxed: Vec<Pin<Box<dyn Future<Output = usize> + Send + '_>>> =
                vec![Box::pin($form!(service)), Box::pin($form!(service))];
            for boxed in boxed {
                assert_eq!(boxed.await, FIVE, "boxed");
            }

            let of_static: Pin<Box<dyn Future<Output = usize> + Send>> = Box::pin(async {
                let service = &*SERVICE;
                $form!(service).await
            });
            assert_eq!(tokio::spawn(of_static).await.unwrap(), FIVE, "of a static");

            async fn handler(State(service): State<Arc<Service>>) -> String {
                $form!(service).await.to_string()
            }
            let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
            let address = listener.local_addr().unwrap();
            let router = Router::new().route("/", get(handler)).with_state(service.clone());
            let server = tokio::spawn(async move { axum::serve(listener, router).await });
            let (one, other) = tokio::join!(request(address), request(address));
            assert_eq!([one, other], ["5", "5"], "served");
            server.abort();

            assert_idle(&service.runtime);
            service.runtime.shutdown().await.unwrap();
        }
    )*};
}

in_every_place! {
    the_short_form_works_everywhere: short;
    the_full_form_works_everywhere: full;
    the_chained_form_works_everywhere: chained;
    async_closures_work_everywhere: closures;
    run_held_works_everywhere: held;
    admit_works_everywhere: admitted;
    run_blocking_works_everywhere: blocking;
    a_typed_operation_works_everywhere: typed;
    functions_and_closures_work_everywhere: plain;
    boxed_operations_and_trait_objects_work_everywhere: forgotten;
}

/// A handler that is not `Send` makes a call that is not, which a local task may run.
#[tokio::test]
async fn a_handler_that_is_not_send_runs_locally() {
    let service = Service::new();
    let text = std::rc::Rc::new(String::from("local"));
    let local = tokio::task::LocalSet::new();
    let made = local.run_until(async move {
        let contract = service.charge.clone();
        tokio::task::spawn_local(async move {
            let mut call = contract.with().key("k");
            call.run(|attempt| {
                let text = std::rc::Rc::clone(&text);
                async move { provider(&text, attempt.number()).await.transient() }
            })
            .await
            .unwrap()
        })
        .await
        .unwrap()
    });
    assert_eq!(made.await, 5);
}
