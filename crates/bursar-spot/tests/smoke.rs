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

#[tokio::test]
async fn an_actor_keeps_its_claim_across_a_yield() {
    let runtime = Runtime::builder().resource("x", 1).build().unwrap();
    let host = Host::new(&runtime);
    let spot = host.create("s", Vec::<u32>::new()).unwrap();
    let (a, b) = (spot.actor(0_u32), spot.actor(0_u32));
    let (go, gate) = tokio::sync::oneshot::channel::<()>();
    let first = a.request(|mut turn| async move {
        turn.state().push(1);
        let (mut turn, _) = turn.yield_on(gate).await;
        let (state, own) = turn.both();
        state.push(3);
        *own += 1;
    });
    let second = a.request(|mut turn| async move {
        let own = *turn.actor();
        turn.state().push(10 + own);
    });
    let other = async {
        b.request(|mut turn| async move { turn.state().push(2) })
            .await
            .unwrap();
        go.send(()).unwrap();
    };
    let (x, y, ()) = tokio::join!(first, second, other);
    x.unwrap();
    y.unwrap();
    assert_eq!(*spot.enter().await.unwrap().state(), [1, 2, 3, 11]);
}
