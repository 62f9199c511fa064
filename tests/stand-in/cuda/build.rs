//! Gives the stand-in the name under which programs look for the driver, and compiles the part that knows the kernels'
//! tables.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    let kernels = "../../../cuda";
    for name in ["params", "platform", "decode/gather", "decode/table", "indexed/table", "packed/table"] {
        println!("cargo:rerun-if-changed={kernels}/{name}.cuh");
    }
    let tables = ["src/augment.c", "src/decode.c"];
    tables.iter().for_each(|table| println!("cargo:rerun-if-changed={table}"));
    cc::Build::new().files(tables).std("c11").include(kernels).warnings_into_errors(true).compile("table");
}
