//! The bytes of memory regions.

/// The bytes of a region. They are zero at first.
pub(crate) struct Pages {
    bytes: Vec<u8>,
    /// Number of bytes up to the last one that may have changed.
    used: usize,
}

impl Pages {
    /// # Panics
    /// If the process has no memory for them.
    pub(crate) fn new(length: usize) -> Self {
        // `vec!` gets zeroed pages from the system, which cost nothing until they are used.
        let bytes = vec![0; length];
        Pages { bytes, used: 0 }
    }

    pub(crate) fn get(&self, offset: usize, length: usize) -> Option<&[u8]> {
        self.bytes.get(offset..offset + length)
    }

    pub(crate) fn get_mut(&mut self, offset: usize, length: usize) -> Option<&mut [u8]> {
        let bytes = self.bytes.get_mut(offset..offset + length)?;
        self.used = self.used.max(offset + length);
        Some(bytes)
    }

    /// Whether nothing has been written to the bytes from `offset` on.
    pub(crate) fn are_zero_from(&self, offset: usize) -> bool {
        self.used <= offset
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}
