use bursar_http::Client;

fn main() {
    let client = Client::builder().build().unwrap();
    let _request = client.post("/orders").raw("text/plain", "a").json(&1);
}
