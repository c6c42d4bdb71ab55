//! A measurement of kept connections.

use super::*;

/// Prints what one machine does over kept connections; run it with `--ignored --nocapture`.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "a measurement, not a check"]
async fn kept_connections_under_load() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let proxy = Proxy::open(RestConfig::default());
    proxy.create("t", 1).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = proxy.router.clone();
    tokio::spawn(async move { axum::serve(listener, router).await });
    for (connections, records) in [(1, 1), (16, 1), (64, 1), (8, 100), (4, 1_000)] {
        let record = "{\"value\":{\"a\":\"0123456789012345678901234567890123456789\"}}";
        let body = format!("{{\"records\":[{}]}}", vec![record; records].join(","));
        let request = format!(
            "POST /topics/t HTTP/1.1\r\nHost: x\r\nContent-Type: \
             application/vnd.kafka.json.v2+json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let until = Instant::now() + Duration::from_secs(3);
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..connections {
            let request = request.clone();
            clients.spawn(async move {
                let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
                stream.set_nodelay(true).unwrap();
                let (mut times, mut buffer) = (Vec::new(), vec![0; 1 << 20]);
                while Instant::now() < until {
                    let started = Instant::now();
                    stream.write_all(request.as_bytes()).await.unwrap();
                    let mut got = 0;
                    while !buffer[..got].ends_with(b"\"value_schema_id\":null}") {
                        got += stream.read(&mut buffer[got..]).await.unwrap();
                    }
                    assert!(buffer.starts_with(b"HTTP/1.1 200"));
                    times.push(started.elapsed());
                }
                times
            });
        }
        let mut times = Vec::new();
        while let Some(done) = clients.join_next().await {
            times.extend(done.unwrap());
        }
        times.sort_unstable();
        let at = |part: usize| times[times.len() * part / 100];
        println!(
            "{connections} connections, {records} records a call: {} calls/s, {} records/s, \
             p50 {:?}, p99 {:?}",
            times.len() / 3,
            times.len() * records / 3,
            at(50),
            at(99)
        );
    }
}
