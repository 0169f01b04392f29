//! Files and folders of the guest, to and from the harness.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use anyhow::{Context, bail};

use super::Reply;
use crate::protocol::{CHUNK, EntryKind, Event, WriteHow};

/// Writes a piece of a file; the folders above it are made.
pub(super) fn write(path: &str, how: WriteHow, bytes: &[u8]) -> anyhow::Result<()> {
    if let Some(folder) = Path::new(path).parent() {
        fs::create_dir_all(folder).with_context(|| format!("cannot make the folder of {path}"))?;
    }
    let mut options = OpenOptions::new();
    match how {
        WriteHow::Create { mode } => options.write(true).create(true).truncate(true).mode(mode),
        WriteHow::Append => options.append(true),
    };
    let mut file = options.open(path).with_context(|| path.to_owned())?;
    file.write_all(bytes)
        .with_context(|| format!("cannot write {path}"))
}

/// Sends a file, or a folder with all below it, from a thread of its own.
pub(super) fn send(path: String, reply: Reply) {
    std::thread::spawn(move || {
        let sent = send_below(Path::new(&path), "", &reply);
        reply.finish(sent.with_context(|| format!("cannot read {path}")));
    });
}

fn send_below(path: &Path, name: &str, reply: &Reply) -> anyhow::Result<()> {
    let meta = fs::metadata(path)?;
    let mode = meta.permissions().mode() & 0o7777;
    let entry = |kind| Event::Entry {
        path: name.to_owned(),
        kind,
        mode,
    };
    if meta.is_dir() {
        reply.send(&entry(EntryKind::Folder));
        for below in fs::read_dir(path)? {
            let below = below?;
            let Ok(file) = below.file_name().into_string() else {
                bail!("{} is not UTF-8", below.path().display());
            };
            let name = if name.is_empty() {
                file
            } else {
                format!("{name}/{file}")
            };
            send_below(&below.path(), &name, reply)?;
        }
        return Ok(());
    }
    let mut file = fs::File::open(path)?;
    reply.send(&entry(EntryKind::File));
    let mut chunk = vec![0; CHUNK];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(()),
            n => reply.send(&Event::Content(chunk[..n].to_vec())),
        }
    }
}
