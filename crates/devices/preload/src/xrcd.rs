//! XRC domains.
//!
//! The domain of a file is the same in all calls with one context. Other processes, and other contexts, that open the
//! domain of the file have a domain of their own: they can neither open its queue pairs nor take its messages.

use std::ffi::c_int;

use adverb_abi::{self as abi, ibv_context, ibv_xrcd, ibv_xrcd_init_attr};
use adverb_softnic::SoftXrcd;

use crate::call::{self, Refusal};
use crate::context::{Context, File};
use crate::convert::check_mask;
use crate::object::{Object, Users, lock};

/// An XRC domain, behind its `ibv_xrcd`.
#[derive(Debug)]
pub(crate) struct Xrcd {
    pub(crate) soft: SoftXrcd,
    /// Queue pairs and shared receive queues.
    pub(crate) users: Users,
    file: Option<File>,
}

type XrcdObject = Object<ibv_xrcd, Xrcd>;

impl Xrcd {
    /// Returns the domain behind a pointer from C.
    ///
    /// # Safety
    /// `xrcd` is from `ibv_open_xrcd`, and not closed within `'a`.
    pub(crate) unsafe fn of<'a>(xrcd: *const ibv_xrcd) -> &'a Self {
        // SAFETY: the caller's.
        &unsafe { XrcdObject::of(xrcd) }.own
    }

    fn open(context: *mut ibv_context, attr: &ibv_xrcd_init_attr) -> Result<Self, Refusal> {
        let needed = abi::IBV_XRCD_INIT_ATTR_FD | abi::IBV_XRCD_INIT_ATTR_OFLAGS;
        check_mask(attr.comp_mask, needed)?;
        if attr.comp_mask != needed {
            return Err(Refusal::invalid(
                "comp_mask needs IBV_XRCD_INIT_ATTR_FD and IBV_XRCD_INIT_ATTR_OFLAGS",
            ));
        }
        // SAFETY: the program passes an open context.
        let open = unsafe { Context::of(context) };
        let users = Users::default();
        let Some(file) = file_of(attr.fd)? else {
            let soft = open.soft.open_xrcd()?;
            return Ok(Xrcd {
                soft,
                users,
                file: None,
            });
        };
        let mut files = lock(&open.xrcds);
        let soft = match files.get_mut(&file) {
            Some(_) if attr.oflags & libc::O_EXCL != 0 => {
                return Err(Refusal::invalid(
                    "O_EXCL, but the XRC domain of the file is open",
                ));
            }
            Some((soft, count)) => {
                *count += 1;
                soft.clone()
            }
            None if attr.oflags & libc::O_CREAT == 0 => {
                return Err(Refusal::new(
                    libc::EAGAIN,
                    "no XRC domain of the file is open in this process: oflags needs O_CREAT",
                ));
            }
            None => {
                let soft = open.soft.open_xrcd()?;
                files.insert(file, (soft.clone(), 1));
                soft
            }
        };
        let file = Some(file);
        Ok(Xrcd { soft, users, file })
    }
}

/// Returns the file behind a descriptor; `None` for -1.
fn file_of(fd: c_int) -> Result<Option<File>, Refusal> {
    if fd == -1 {
        return Ok(None);
    }
    if fd < 0 {
        return Err(Refusal::new(
            libc::EBADF,
            format!("invalid file descriptor {fd}"),
        ));
    }
    let mut found = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: there is room for the status; the call fails if the descriptor is closed.
    if unsafe { libc::fstat(fd, found.as_mut_ptr()) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: the call has succeeded.
    let found = unsafe { found.assume_init() };
    Ok(Some((found.st_dev, found.st_ino)))
}

/// `ibv_open_xrcd` of the table.
pub(crate) unsafe extern "C" fn open_xrcd(
    context: *mut ibv_context,
    attr: *mut ibv_xrcd_init_attr,
) -> *mut ibv_xrcd {
    call::pointer("ibv_open_xrcd", || {
        // SAFETY: the program passes attributes.
        let own = Xrcd::open(context, unsafe { &*attr })?;
        Ok(XrcdObject::create(ibv_xrcd { context }, own))
    })
}

/// `ibv_close_xrcd` of the table.
pub(crate) unsafe extern "C" fn close_xrcd(xrcd: *mut ibv_xrcd) -> c_int {
    call::status("ibv_close_xrcd", || {
        // SAFETY: the program passes a domain that it has opened.
        let (own, context) = unsafe { (Xrcd::of(xrcd), Context::of((*xrcd).context)) };
        own.users.check_none("the XRC domain")?;
        if let Some(file) = own.file {
            let mut files = lock(&context.xrcds);
            if let Some((_, count)) = files.get_mut(&file) {
                *count -= 1;
                if *count == 0 {
                    files.remove(&file);
                }
            }
        }
        // SAFETY: the program closes it once, and nothing uses it.
        unsafe { XrcdObject::destroy(xrcd) };
        Ok(())
    })
}
