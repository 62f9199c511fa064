//! Bob Jenkins' hash function `hashlittle` of `lookup3.c`, with which HDF5 checks its metadata and sorts names.

/// The hash of the bytes, with the initial value 0.
pub fn lookup3(bytes: &[u8]) -> u32 {
    // The length counts modulo 2^32, as in the C code.
    let start = 0xDEAD_BEEF_u32.wrapping_add(bytes.len() as u32);
    let mut state = [start; 3];
    let mut rest = bytes;
    while let Some((block, after)) = rest.split_first_chunk::<12>().filter(|(_, after)| !after.is_empty()) {
        state = mix(add(state, block));
        rest = after;
    }
    if rest.is_empty() {
        return start;
    }
    let mut last = [0; 12];
    last[..rest.len()].copy_from_slice(rest);
    finish(add(state, &last))
}

fn add(state: [u32; 3], block: &[u8; 12]) -> [u32; 3] {
    let (words, _) = block.as_chunks::<4>();
    std::array::from_fn(|at| state[at].wrapping_add(u32::from_le_bytes(words[at])))
}

fn mix([mut a, mut b, mut c]: [u32; 3]) -> [u32; 3] {
    for [first, second, third] in [[4, 6, 8], [16, 19, 4]] {
        a = a.wrapping_sub(c) ^ c.rotate_left(first);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(second);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(third);
        b = b.wrapping_add(a);
    }
    [a, b, c]
}

fn finish([mut a, mut b, mut c]: [u32; 3]) -> u32 {
    let step = |to: u32, from: u32, by: u32| (to ^ from).wrapping_sub(from.rotate_left(by));
    c = step(c, b, 14);
    a = step(a, c, 11);
    b = step(b, a, 25);
    c = step(c, b, 16);
    a = step(a, c, 4);
    b = step(b, a, 14);
    step(c, b, 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_c_code() {
        assert_eq!(lookup3(b""), 0xDEAD_BEEF);
        // The value that `driver5` of lookup3.c prints.
        assert_eq!(lookup3(b"Four score and seven years ago"), 0x1777_0551);
    }
}
