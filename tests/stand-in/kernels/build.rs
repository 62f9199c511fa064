//! Compiles the kernels for the CPU, with the arithmetic of the GPU: no multiplication is fused with an addition.

fn main() {
    let cuda = "../../../cuda";
    for name in [
        "augment",
        "block",
        "colour",
        "finish",
        "mix",
        "params",
        "platform",
        "resize",
        "untouched",
        "weights",
    ] {
        println!("cargo:rerun-if-changed={cuda}/{name}.cuh");
    }
    println!("cargo:rerun-if-changed={cuda}/augment_cpu.c");
    cc::Build::new()
        .file(format!("{cuda}/augment_cpu.c"))
        .std("c11")
        .flag("-ffp-contract=off")
        .opt_level(2)
        .compile("foreload_kernels");
}
