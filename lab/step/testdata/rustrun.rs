// Uses Rust's standard library argv[1] times: collections, caught panics, threads.
use std::collections::{BTreeMap, HashMap};

struct Guard(u64);
impl Drop for Guard {
    fn drop(&mut self) {
        std::hint::black_box(self.0);
    }
}

fn deep(n: u64) -> u64 {
    let g = Guard(n);
    if n == 0 {
        std::panic::resume_unwind(Box::new(7u64));
    }
    deep(n - 1) + g.0
}

fn main() {
    let n: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let mut total = 0u64;
    for i in 0..n {
        let mut words: HashMap<String, u64> = HashMap::new();
        for w in "one two three two one".split(' ') {
            *words.entry(format!("{w}{}", i % 3)).or_insert(0) += i;
        }
        let sorted: BTreeMap<_, _> = words.iter().collect();
        total += format!("{:?} {:.3}", sorted, i as f64 / 7.0).len() as u64;
        total += std::panic::catch_unwind(|| deep(i % 10)).unwrap_err().downcast_ref::<u64>().unwrap();
        total += std::thread::spawn(move || (0..100u64).map(|x| x * i).filter(|x| x % 3 == 0).sum::<u64>()).join().unwrap();
        let mut v: Vec<u64> = (0..200).map(|x| (x * 7919 + i) % 1009).collect();
        v.sort_unstable();
        total += v[7];
    }
    println!("{total}");
}
