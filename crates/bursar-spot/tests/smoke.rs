//! A first look.
use bursar::Runtime;
use bursar_spot::Host;

#[tokio::test]
async fn turns_run_one_by_one() {
    let runtime = Runtime::builder().resource("x", 1).build().unwrap();
    let host = Host::new(&runtime);
    let spot = host.create("s", Vec::<u32>::new()).unwrap();
    for n in 0..3 {
        spot.request(move |mut turn| async move { turn.state().push(n) })
            .await
            .unwrap();
    }
    let (a, b) = tokio::join!(
        spot.request(|mut turn| async move {
            turn.state().push(10);
            tokio::task::yield_now().await;
            turn.state().push(11);
            let (mut turn, ()) = turn.yield_on(tokio::task::yield_now()).await;
            turn.state().push(12);
            turn.state().clone()
        }),
        spot.request(|mut turn| async move {
            turn.state().push(20);
            tokio::task::yield_now().await;
            turn.state().push(21);
        })
    );
    b.unwrap();
    assert_eq!(a.unwrap(), [0, 1, 2, 10, 11, 20, 21, 12]);
    spot.send(|mut turn| async move { turn.state().push(30) })
        .await
        .unwrap();
    assert_eq!(spot.enter().await.unwrap().state().len(), 9);
}
