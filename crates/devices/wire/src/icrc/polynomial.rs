//! Polynomials modulo CRC-32's, in the bit order of a CRC register: the highest power in the lowest bit.

/// CRC-32's polynomial.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// x^0.
const ONE: u32 = 1 << 31;
/// x^-8: the polynomial is primitive, so x^(2^32 - 1) = 1.
const BYTE_BACK: u32 = power(1 << 30, u32::MAX - 8);
/// Powers of x^-8 by the digits of the exponent in base 16, for exponents below 2^16.
const BACK: [[u32; 16]; 4] = digits();

/// Returns the difference of two CRCs as it was `bytes` bytes (below 2^16) earlier: multiplies it by x^-8 per byte.
pub(super) fn unshift(difference: u32, bytes: usize) -> u32 {
    BACK.iter()
        .enumerate()
        .fold(difference, |product, (i, row)| {
            match bytes >> (4 * i) & 15 {
                0 => product,
                digit => multiply(product, row[digit]),
            }
        })
}

/// Returns the product of two polynomials modulo CRC-32's.
const fn multiply(a: u32, mut b: u32) -> u32 {
    let mut product = 0;
    let mut term = ONE;
    while term != 0 {
        if a & term != 0 {
            product ^= b;
        }
        b = (b >> 1) ^ (POLYNOMIAL & (b & 1).wrapping_neg());
        term >>= 1;
    }
    product
}

/// Returns a power of a polynomial modulo CRC-32's.
const fn power(base: u32, mut exponent: u32) -> u32 {
    let mut product = ONE;
    let mut square = base;
    while exponent != 0 {
        if exponent & 1 != 0 {
            product = multiply(product, square);
        }
        square = multiply(square, square);
        exponent >>= 1;
    }
    product
}

/// Computes [`BACK`].
const fn digits() -> [[u32; 16]; 4] {
    let mut table = [[ONE; 16]; 4];
    let mut base = BYTE_BACK;
    let mut row = 0;
    while row < table.len() {
        let mut digit = 1;
        while digit < 16 {
            table[row][digit] = multiply(table[row][digit - 1], base);
            digit += 1;
        }
        base = multiply(table[row][15], base);
        row += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shifts the register of a CRC by `bytes` zero bytes, one bit at a time.
    fn shift(mut register: u32, bytes: usize) -> u32 {
        for _ in 0..8 * bytes {
            register = (register >> 1) ^ (POLYNOMIAL & (register & 1).wrapping_neg());
        }
        register
    }

    #[test]
    fn unshift_is_the_inverse_of_shift() {
        for bytes in [0, 1, 15, 16, 17, 255, 4096, 65_535] {
            for register in [1, 0xabcd, 0x8000_0000, 0xdead_beef] {
                assert_eq!(unshift(shift(register, bytes), bytes), register);
            }
        }
    }
}
