use bursar_http::Client;

fn main() {
    let client = Client::builder().build().unwrap();
    let _sent = client.post("/events").json(&1).submit();
}
