use derive::Named;

#[derive(Named)]
struct Sample;

fn main() {
    let caught =
        std::env::args().len() > 1 && std::panic::catch_unwind(|| inner::double(i32::MAX)).is_err();
    println!(
        "{} {} {} {}",
        Sample::NAME,
        env!("FROM_BUILD"),
        inner::double(21),
        caught
    );
}
