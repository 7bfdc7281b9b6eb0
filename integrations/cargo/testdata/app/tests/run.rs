use std::process::Command;

#[test]
fn runs() {
    let out = Command::new(env!("CARGO_BIN_EXE_app"))
        .arg("panic")
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&out.stdout),
        "Sample built 42 true\n"
    );
}
