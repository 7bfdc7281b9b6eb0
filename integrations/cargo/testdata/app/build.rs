fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-env=FROM_BUILD=built");
}
