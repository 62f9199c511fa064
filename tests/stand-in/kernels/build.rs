//! Compiles the kernels for the CPU, with the arithmetic of the GPU: no multiplication is fused with an addition.
//!
//! What decodes images may read an enemy's bytes. It is compiled so that a program ends at an index beyond an
//! array, a shift that has no meaning, or a sum that leaves its type.

fn main() {
    let cuda = "../../../cuda";
    // A folder stands for all files in it, but not in its own folders.
    for folder in ["decode", "indexed", "ops", "packed"] {
        println!("cargo:rerun-if-changed={cuda}/{folder}");
    }
    for entry in std::fs::read_dir(cuda).expect("the folder of the kernels") {
        let path = entry.expect("a file of the kernels").path();
        if path.extension().is_some_and(|kind| kind == "cuh" || kind == "c") {
            println!("cargo:rerun-if-changed={}", path.display());
        }
    }
    let compile = |name: &str, checks: &[&str]| {
        let mut build = cc::Build::new();
        build.file(format!("{cuda}/{name}.c")).include(cuda).std("c11").opt_level(2);
        build.flag("-ffp-contract=off");
        checks.iter().for_each(|check| {
            build.flag(check);
        });
        build.compile(&format!("foreload_{name}"));
    };
    compile("augment_cpu", &[]);
    let watched = "-fsanitize=bounds,shift,signed-integer-overflow,integer-divide-by-zero";
    compile("decode_cpu", &[watched, "-fsanitize-undefined-trap-on-error"]);
}
