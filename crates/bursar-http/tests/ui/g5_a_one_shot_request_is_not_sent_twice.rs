use bursar_http::Client;

async fn twice() {
    let request = Client::builder().get("http://example.com/");
    let _first = request.send_raw().await;
    let _second = request.send_raw().await;
}

fn copied() {
    let request = Client::builder().get("http://example.com/");
    let _copy = request.clone();
}

fn main() {
    let _ = twice();
    copied();
}
