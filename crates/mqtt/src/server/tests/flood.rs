//! How fast it is: `cargo test -p mqtt --release -- --ignored --nocapture flood`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::client::{connect, publish};
use super::{Running, until};
use crate::config::MqttConfig;
use crate::message::{Delivery, Message, MessageSink};

#[derive(Default)]
struct Counting {
    messages: AtomicU64,
    calls: AtomicU64,
}

impl MessageSink for Counting {
    fn deliver(&self, batch: &[Message<'_>]) -> Delivery {
        self.messages
            .fetch_add(batch.len() as u64, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Relaxed);
        Delivery::Taken
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, not a check"]
async fn flood_of_qos_0_into_a_sink() {
    measure(10, 500_000, 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement, not a check"]
async fn flood_of_qos_1_into_a_sink() {
    measure(10, 200_000, 1).await;
}

/// Publishers send the same block again and again, so that the sending costs little.
async fn measure(publishers: u64, each: u64, qos: u8) {
    let running = Running::start(MqttConfig::default()).await;
    let sink = Arc::new(Counting::default());
    running
        .server
        .subscribe("sensors/#".parse().unwrap(), sink.clone());
    let expected = publishers * each;
    let (begun, cpu) = (Instant::now(), process_cpu_ms());
    let port = running.port;
    let threads: Vec<_> = (0..publishers)
        .map(|n| std::thread::spawn(move || send(port, n, each, qos)))
        .collect();
    let sending_ms = tokio::task::spawn_blocking(move || {
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum::<u64>()
    });
    let sending_ms = sending_ms.await.unwrap();
    super::until("all arrived", || {
        sink.messages.load(Ordering::Relaxed) >= expected
    })
    .await;
    let (seconds, cpu_ms) = (begun.elapsed().as_secs_f64(), process_cpu_ms() - cpu);
    assert_eq!(sink.messages.load(Ordering::Relaxed), expected);
    let per_call = expected / sink.calls.load(Ordering::Relaxed).max(1);
    let us = |ms: u64| ms as f64 * 1_000.0 / expected as f64;
    println!(
        "{publishers} publishers, QoS {qos}: {expected} messages in {seconds:.2} s, {:.0}/s, \
         {per_call} per call, server {:.3} us a message, publishers {:.3}",
        expected as f64 / seconds,
        us(cpu_ms.saturating_sub(sending_ms)),
        us(sending_ms),
    );
    running.stop().await;
}

/// Returns the CPU milliseconds that the sending thread took.
fn send(port: u16, number: u64, each: u64, qos: u8) -> u64 {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .write_all(&connect(&format!("p{number}"), true, 0, None))
        .unwrap();
    stream.read_exact(&mut [0; 4]).unwrap();
    let payload =
        br#"{"id":"sensor-17","n":1234567,"t":1763690000000,"value":21.503,"unit":"Cel"}"#;
    let per_block = 500u16;
    let mut block = Vec::new();
    for id in 1..=per_block {
        block.extend(publish(
            &format!("sensors/{number}"),
            payload,
            qos,
            false,
            id,
        ));
    }
    let mut acks = vec![0; 4 * usize::from(per_block)];
    for _ in 0..each / u64::from(per_block) {
        stream.write_all(&block).unwrap();
        if qos > 0 {
            stream.read_exact(&mut acks).unwrap();
        }
    }
    stream.write_all(b"\xe0\0").unwrap();
    let own = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    own.split(' ').next().unwrap().parse::<u64>().unwrap() / 1_000_000
}

/// CPU milliseconds of the process so far, counted in ticks of 10 ms.
fn process_cpu_ms() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap()
        .split_whitespace()
        .collect();
    let ticks = |index: usize| fields[index].parse::<u64>().unwrap();
    (ticks(11) + ticks(12)) * 10
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn links_that_flood_leave_others_their_turn() {
    let running = Running::start(MqttConfig::default()).await;
    let (port, stop) = (running.port, Arc::new(AtomicBool::new(false)));
    let packets = publish("t", &[7; 100], 0, false, 0).repeat(1_000);
    let floods: Vec<_> = (0..4)
        .map(|n| {
            let (stop, packets) = (stop.clone(), packets.clone());
            std::thread::spawn(move || {
                let mut link = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let hello = connect(&format!("flood{n}"), true, 0, None);
                link.write_all(&hello).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    link.write_all(&packets).unwrap();
                }
            })
        })
        .collect();
    until("they flood", || {
        running.server.stats().messages_received_total > 100_000
    })
    .await;
    for _ in 0..3 {
        let began = Instant::now();
        let mut client = running.client("other").await;
        client.expect_nothing().await;
        let took = began.elapsed();
        assert!(took < Duration::from_secs(3), "{took:?}");
    }
    stop.store(true, Ordering::Relaxed);
    tokio::task::spawn_blocking(move || floods.into_iter().for_each(|f| f.join().unwrap()))
        .await
        .unwrap();
    running.stop().await;
}
