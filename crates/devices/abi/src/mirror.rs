//! The macros that mirror a structure and list its members for the layout test.

/// A mirrored structure or union.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Its type in C.
    pub c: &'static str,
    /// Its size here, in bytes.
    pub size: usize,
    /// Its members.
    pub fields: &'static [Field],
}

/// A member of a mirrored structure.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name in C.
    pub name: &'static str,
    /// Its offset here, in bytes.
    pub offset: usize,
    /// Its size here, in bytes.
    pub size: usize,
}

/// A constant of C.
#[derive(Clone, Copy, Debug)]
pub struct Constant {
    /// Its name in C.
    pub name: &'static str,
    /// Its value here.
    pub value: i64,
}

/// Makes `#[repr(C)]` structures and unions, a `zeroed` of each, and the list `LAYOUTS` of them.
macro_rules! mirror {
    ($($(#[$meta:meta])* $kind:ident $name:ident = $c:literal {
        $($field:ident: $type:ty,)*
    })*) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            pub $kind $name {
                $(pub $field: $type,)*
            }

            impl $name {
                /// One whose bytes are all zero, as C programs begin with.
                pub const fn zeroed() -> Self {
                    // SAFETY: members are integers, raw pointers, optional function pointers and
                    // structures of these (and libc's of such): all zero is a value of each.
                    unsafe { std::mem::zeroed() }
                }
            }
        )*

        pub(crate) const LAYOUTS: &[$crate::Layout] = &[$($crate::Layout {
            c: $c,
            size: size_of::<$name>(),
            fields: &[$($crate::Field {
                name: stringify!($field),
                offset: std::mem::offset_of!($name, $field),
                size: size_of::<$type>(),
            },)*],
        },)*];
    };
}

/// Makes constants and the list `CONSTANTS` of them.
macro_rules! constants {
    ($($type:ident { $($name:ident = $value:expr,)* })*) => {
        $($(
            pub const $name: $type = $value;
        )*)*

        /// All mirrored constants.
        pub const CONSTANTS: &[$crate::Constant] = &[$($($crate::Constant {
            name: stringify!($name),
            value: $name as i64,
        },)*)*];
    };
}

pub(crate) use {constants, mirror};
