// Threads that fill collections. Panics are caught, and some take a backtrace.
use std::backtrace::Backtrace;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::panic::catch_unwind;
use std::sync::{mpsc, Arc, Mutex};
use std::thread;

#[inline(never)]
fn descend(depth: u32) -> u32 {
    let space = vec![depth; 3];
    if depth == 0 {
        panic!("bottom");
    }
    descend(depth - 1) + space[1]
}

fn collect(number: u32) -> usize {
    let words: HashMap<String, Vec<u32>> = (0..300).map(|i| (format!("{i} {number}"), vec![i; 9])).collect();
    let mut tree: BTreeMap<Box<str>, Arc<VecDeque<u32>>> = BTreeMap::new();
    for (word, numbers) in &words {
        tree.insert(word.as_str().into(), Arc::new(numbers.iter().map(|n| n * 2).collect()));
    }
    let mut sorted: Vec<Box<dyn Fn() -> String + '_>> = Vec::new();
    for (word, numbers) in &tree {
        sorted.push(Box::new(move || format!("{word}: {numbers:?}")));
    }
    sorted.iter().map(|f| f().len()).sum()
}

fn main() {
    std::panic::set_hook(Box::new(|_| {
        assert!(!Backtrace::force_capture().to_string().is_empty());
    }));
    let total = Arc::new(Mutex::new(0));
    let (sender, receiver) = mpsc::channel::<String>();
    for number in 0..4 {
        let (sender, total) = (sender.clone(), Arc::clone(&total));
        thread::spawn(move || {
            *total.lock().unwrap() += collect(number);
            let caught = (0..9).filter(|_| catch_unwind(|| descend(20)).is_err()).count();
            sender.send(format!("{caught} panics")).unwrap();
        });
    }
    drop(sender);
    assert!(receiver.iter().all(|s| s == "9 panics"));
    assert!(thread::spawn(|| descend(9)).join().is_err());
    println!("{}", total.lock().unwrap());
}
