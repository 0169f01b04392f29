//! Files of the guest, from and to this host.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use super::{ANSWER_TIMEOUT, KEPT_OUTPUT, Machine};
use crate::error::{Error, io_error};
use crate::protocol::{CHUNK, EntryKind, Event, Request, WriteHow};

impl Machine {
    /// Writes a file of the guest, with these permission bits.
    ///
    /// # Errors
    /// The guest cannot write it; the machine is gone or does not answer.
    pub fn write_file(&self, path: &str, mode: u32, content: &[u8]) -> Result<(), Error> {
        let mut how = WriteHow::Create { mode };
        let mut chunks = content.chunks(CHUNK);
        let mut chunk = chunks.next().unwrap_or_default();
        loop {
            let (path, bytes) = (path.to_owned(), chunk.to_vec());
            let pending = self.ask(&Request::Write { path, how, bytes })?;
            self.done(&pending, ANSWER_TIMEOUT, "write a file")?;
            let Some(next) = chunks.next() else {
                return Ok(());
            };
            (how, chunk) = (WriteHow::Append, next);
        }
    }

    /// Copies a file or a folder of the guest to this host.
    ///
    /// # Errors
    /// The guest cannot read it or this host cannot write it; the machine is gone or does not
    /// answer.
    pub fn get(&self, from: &str, to: &Path) -> Result<(), Error> {
        let mut file = None;
        let mut at = to.to_owned();
        self.fetch(from, |part| {
            match part {
                Part::Entry { path, kind, mode } => {
                    at = below(to, &path)?;
                    file = create(&at, kind, mode).map_err(io_error("cannot create", &at))?;
                }
                Part::Content(bytes) => {
                    if let Some(file) = &mut file {
                        let written = file.write_all(&bytes);
                        written.map_err(io_error("cannot write", &at))?;
                    }
                }
            }
            Ok(())
        })
    }

    /// Reads a file of the guest, such as one of `/proc` or `/sys`.
    ///
    /// # Errors
    /// The guest cannot read it, or it is longer than 64 MiB; the machine is gone or does not
    /// answer.
    pub fn read_file(&self, path: &str) -> Result<Vec<u8>, Error> {
        let mut content = Vec::new();
        self.fetch(path, |part| {
            match part {
                Part::Content(bytes) => content.extend(bytes),
                Part::Entry {
                    kind: EntryKind::Folder,
                    ..
                } => {
                    return Err(self.refused(format!("{path} is a folder")));
                }
                Part::Entry { .. } => {}
            }
            if content.len() as u64 > KEPT_OUTPUT.get() {
                let text = format!("{path} is longer than {KEPT_OUTPUT}");
                return Err(self.refused(text));
            }
            Ok(())
        })?;
        Ok(content)
    }

    /// Has a file or folder of the guest sent, part by part.
    fn fetch(
        &self,
        path: &str,
        mut take: impl FnMut(Part) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let path = path.to_owned();
        let pending = self.ask(&Request::Get { path })?;
        loop {
            match self.receive(&pending.events, ANSWER_TIMEOUT, "send a file")? {
                Event::Done => return Ok(()),
                Event::Failed(reason) => return Err(self.refused(reason)),
                Event::Entry { path, kind, mode } => take(Part::Entry { path, kind, mode })?,
                Event::Content(bytes) => take(Part::Content(bytes))?,
                other => return Err(self.refused(format!("unexpected answer {other:?}"))),
            }
        }
    }
}

/// What the guest sends of a file or folder.
enum Part {
    /// The content that follows is of this path below the one asked for.
    Entry {
        path: String,
        kind: EntryKind,
        mode: u32,
    },
    Content(Vec<u8>),
}

/// A path that the guest named, below `root`; it may not lead out of it.
fn below(root: &Path, path: &str) -> Result<PathBuf, Error> {
    let path = Path::new(path);
    if path.components().all(|c| matches!(c, Component::Normal(_))) {
        return Ok(if path.as_os_str().is_empty() {
            root.to_owned()
        } else {
            root.join(path)
        });
    }
    Err(Error::Path {
        path: path.to_owned(),
        what: "the guest sent a path that leads elsewhere",
    })
}

fn create(path: &Path, kind: EntryKind, mode: u32) -> std::io::Result<Option<fs::File>> {
    if kind == EntryKind::Folder {
        fs::create_dir_all(path)?;
        return Ok(None);
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let file = fs::File::create(path)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    Ok(Some(file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_cannot_write_elsewhere() {
        let root = Path::new("/out");
        assert_eq!(below(root, "a/b").unwrap(), Path::new("/out/a/b"));
        assert_eq!(below(root, "").unwrap(), root);
        for path in ["../x", "/etc/passwd", "a/../../x"] {
            assert!(below(root, path).is_err(), "{path}");
        }
    }
}
