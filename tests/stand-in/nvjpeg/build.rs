//! Gives the library the file name of nvJPEG.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnvjpeg.so.13");
    println!("cargo:rerun-if-changed=build.rs");
}
