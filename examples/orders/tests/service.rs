//! The service as its clients see it.

use std::net::SocketAddr;

use axum::body::{Body, Bytes};
use axum::http::{Method, Request, StatusCode};
use bursar::DrainReport;
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use sqlx::SqlitePool;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

type Served = Result<DrainReport, Box<dyn std::error::Error + Send + Sync>>;

struct Service {
    address: SocketAddr,
    client: Client<HttpConnector, Body>,
    pool: SqlitePool,
    signal: oneshot::Sender<()>,
    serving: JoinHandle<Served>,
    _directory: tempfile::TempDir,
}

async fn start() -> Service {
    let directory = tempfile::tempdir().unwrap();
    let pool = orders::open(&directory.path().join("orders.db"))
        .await
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (signal, fired) = oneshot::channel::<()>();
    Service {
        address: listener.local_addr().unwrap(),
        client: Client::builder(TokioExecutor::new()).build_http(),
        pool: pool.clone(),
        signal,
        serving: tokio::spawn(orders::serve(listener, pool, fired)),
        _directory: directory,
    }
}

impl Service {
    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> (StatusCode, Bytes) {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}{path}", self.address))
            .header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response = self.client.request(request).await.unwrap();
        let status = response.status();
        (
            status,
            response.into_body().collect().await.unwrap().to_bytes(),
        )
    }

    async fn order(&self, product: i64, customer: &str) -> StatusCode {
        let body = serde_json::json!({ "product": product, "customer": customer }).to_string();
        self.send(Method::POST, "/orders", &[], &body).await.0
    }

    async fn count(&self, query: &'static str) -> i64 {
        sqlx::query_scalar(query)
            .fetch_one(&self.pool)
            .await
            .unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_lamps_are_sold_once_each_however_many_ask() {
    let service = std::sync::Arc::new(start().await);
    let buyers: Vec<_> = (0..150)
        .map(|buyer| {
            let service = std::sync::Arc::clone(&service);
            tokio::spawn(async move { service.order(1, &format!("customer {}", buyer % 40)).await })
        })
        .collect();
    let mut sold = 0;
    for buyer in buyers {
        match buyer.await.unwrap() {
            StatusCode::OK => sold += 1,
            // Too late, or too many at a time for this machine: neither took a lamp.
            StatusCode::CONFLICT | StatusCode::SERVICE_UNAVAILABLE => {}
            other => panic!("{other}"),
        }
    }
    assert!(sold > 0);
    assert_eq!(service.count("SELECT COUNT(*) FROM orders").await, sold);
    assert_eq!(
        service.count("SELECT stock FROM products").await,
        100 - sold
    );
}

#[tokio::test]
async fn answers_are_what_they_were_and_a_deadline_of_zero_runs_nothing() {
    let service = start().await;
    let (status, body) = service.send(Method::GET, "/products/1", &[], "").await;
    assert_eq!(status, 200);
    assert_eq!(body, r#"{"id":1,"name":"desk lamp","stock":100}"#);
    assert_eq!(
        service.send(Method::GET, "/products/2", &[], "").await.0,
        404
    );
    assert_eq!(service.order(2, "ann").await, 409);
    for (method, path) in [(Method::GET, "/products/1"), (Method::POST, "/orders")] {
        let body = r#"{"product":1,"customer":"ann"}"#;
        let (status, body) = service
            .send(method, path, &[("x-timeout-ms", "0")], body)
            .await;
        assert_eq!(status, 503);
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            (&problem["code"], &problem["attempts"]),
            (&"not-in-time".into(), &0.into())
        );
    }
    assert_eq!(service.count("SELECT COUNT(*) FROM orders").await, 0);
    let (_, stats) = service.send(Method::GET, "/stats", &[], "").await;
    assert!(String::from_utf8(stats.to_vec()).unwrap().contains("place"));
}

#[tokio::test]
async fn it_ends_when_it_is_told_to() {
    let service = start().await;
    assert_eq!(service.order(1, "ann").await, 200);
    service.signal.send(()).unwrap();
    let report = service.serving.await.unwrap().unwrap();
    assert_eq!(report.running(), 0);
    assert!(
        TcpListener::bind(service.address).await.is_ok(),
        "nobody listens any more"
    );
}

#[cfg(unix)]
#[test]
fn whoever_deploys_ends_it_with_sigterm() {
    use std::io::{BufRead, BufReader, Read};
    use std::process::{Command, Stdio};
    let directory = tempfile::tempdir().unwrap();
    let mut program = Command::new(env!("CARGO_BIN_EXE_orders"))
        .arg("127.0.0.1:0")
        .arg(directory.path().join("orders.db"))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(program.stdout.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.starts_with("listening on http://"), "{line}");
    let id = program.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-TERM", &id])
            .status()
            .unwrap()
            .success()
    );
    assert!(program.wait().unwrap().success());
    let mut report = String::new();
    said.read_to_string(&mut report).unwrap();
    assert!(
        report.contains("ended") && report.contains("place"),
        "{report}"
    );
}
