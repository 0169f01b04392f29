//! Conversions between C's attributes and ours.

use adverb_verbs::PathMtu;

/// Returns the code of a path MTU (`enum ibv_mtu`).
pub(crate) const fn mtu_code(mtu: PathMtu) -> u32 {
    mtu as u32 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_mtus_have_the_codes_of_the_header() {
        let codes = PathMtu::ALL.map(mtu_code);
        assert_eq!(codes, [1, 2, 3, 4, 5]);
        assert_eq!(mtu_code(PathMtu::B4096), adverb_abi::IBV_MTU_4096);
    }
}
