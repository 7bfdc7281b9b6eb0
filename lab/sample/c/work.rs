//! Hash maps, strings, panics that unwind, and threads.
use std::collections::HashMap;

fn deep(n: u32, m: &mut HashMap<String, u32>) -> u32 {
    *m.entry(format!("{}", n % 7)).or_insert(0) += n;
    if n == 0 {
        panic!("bottom");
    }
    deep(n - 1, m) + 1
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    loop {
        let threads: Vec<_> = (1..3u32)
            .map(|i| {
                std::thread::spawn(move || {
                    let mut m = HashMap::new();
                    for round in 0..200 {
                        let r = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| deep(round % 20 + i, &mut m)));
                        assert!(r.is_err());
                        let mut words: Vec<String> = m.keys().map(|k| k.repeat(3)).collect();
                        words.sort_by(|a, b| b.cmp(a));
                    }
                    m.len()
                })
            })
            .collect();
        for t in threads {
            t.join().unwrap();
        }
    }
}
