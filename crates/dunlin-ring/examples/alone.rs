//! Both ends in one thread: what the code costs without the way between two cores.
use dunlin_ring::{Design, RingConfig, UnconnectedConsumer, UnconnectedProducer};
use dunlin_shm::{ShmConfig, ShmDevice};
use std::time::{Duration, Instant};
fn main() {
    for design in Design::ALL
        .into_iter()
        .filter(|d| std::env::args().nth(1).is_none_or(|n| n == d.name))
    {
        let config = RingConfig::for_records(design, 64);
        let producer =
            UnconnectedProducer::new(&ShmDevice::open(ShmConfig::default()).unwrap(), &config)
                .unwrap();
        let consumer =
            UnconnectedConsumer::new(&ShmDevice::open(ShmConfig::default()).unwrap(), &config)
                .unwrap();
        let (a, b) = (producer.offer(), consumer.offer());
        let mut producer = producer.connect(&b).unwrap();
        let mut consumer = consumer.connect(&a).unwrap();
        let (mut sending, mut receiving) = (Duration::ZERO, Duration::ZERO);
        let rounds = 100_000u64;
        let mut next = 0u64;
        std::thread::sleep(Duration::from_millis(50));
        for round in 0..rounds {
            if round == 100 {
                std::thread::sleep(Duration::from_millis(50));
                sending = Duration::ZERO;
                receiving = Duration::ZERO;
            }
            let start = Instant::now();
            for i in 0..64u64 {
                let n = round * 64 + i;
                while producer
                    .try_send_with(64, |place| {
                        for word in place.as_chunks_mut::<8>().0 {
                            *word = n.to_le_bytes();
                        }
                    })
                    .is_err()
                {
                    producer.poll().unwrap();
                    std::thread::yield_now();
                    consumer.receive_many(1, |_| next += 1).unwrap();
                }
            }
            producer.flush().unwrap();
            let middle = Instant::now();
            while next < (round + 1) * 64 {
                if !producer.is_flushed() {
                    producer.poll().unwrap();
                }
                consumer
                    .receive_many(64, |m| {
                        assert_eq!(m.u64_at(0), next);
                        next += 1;
                    })
                    .unwrap();
            }
            sending += middle - start;
            receiving += middle.elapsed();
        }
        let each = |d: Duration| d.as_nanos() as f64 / (rounds * 64) as f64;
        println!(
            "{}: send {:.1} ns, receive {:.1} ns",
            design.name,
            each(sending),
            each(receiving)
        );
    }
}
