//! What a study begins with: its parameters, folder and devices, new or resumed.

use std::path::Path;

use adverb_experiments::{Profile, ProgramStudy, StudyId};
use adverb_launch::{DeviceChoice, DeviceInfo, Usage};
use adverb_measure::{Folder, Meta};
use adverb_verbs::PathOptions;
use anyhow::bail;

use super::planned::{StudyDevice, asked_figures};
use crate::args::{DeviceArgs, PlaceArgs, StudyArgs, flags_of};
use crate::request::{self, Shape};
use crate::{hosts, terminal};

/// Returns the parameters of a new study, or the locked folder of one that is resumed, with its parameters.
pub(super) fn parameters(args: &StudyArgs, out: &Path) -> anyhow::Result<(Option<Folder>, Meta)> {
    args.device.check_gid()?;
    if !args.resume {
        return Ok((None, new_meta(args)?));
    }
    if !out.is_dir() {
        bail!(
            "folder {} does not exist, so there is nothing to resume: leave out --resume",
            out.display()
        );
    }
    let folder = Folder::claim(out)?;
    let meta = resumed(args, folder.meta()?)?;
    Ok((Some(folder), meta))
}

/// Checks device and places. Returns the device of all figures, then those that it is compared with. A server is contacted
/// before a new folder is created, so that an unreachable one leaves no folder.
pub(super) fn places(args: &StudyArgs, meta: &Meta) -> anyhow::Result<Vec<StudyDevice>> {
    let mut devices = std::iter::once(&meta.device).chain(&meta.other_devices);
    if let Some(device) = devices.find(|device| matches!(device, DeviceChoice::Tcp(_))) {
        let reason = format!(
            "--device {device}: the studies are of RDMA; `adverb ping` and `adverb blast` run on {device}"
        );
        return Err(Usage(reason).into());
    }
    if args.device.all().len() > 1 {
        let reason =
            "--device: both sides of a study use one device; repeat --device to compare several";
        return Err(Usage(reason.to_owned()).into());
    }
    let mut places = vec![first_place(args, meta)?];
    for device in &meta.other_devices {
        places.push(another_place(device, args, meta)?);
    }
    Ok(places)
}

/// The device of all figures, with the peer of the study.
fn first_place(args: &StudyArgs, meta: &Meta) -> anyhow::Result<StudyDevice> {
    request::check_places(&meta.device, &args.place, Shape::Pair)?;
    let mut place = args.place.clone();
    place.peer = meta.peer.iter().cloned().collect();
    request::check_places(&meta.device, &place, Shape::Pair)?;
    let info = DeviceInfo::query(&meta.device)?;
    let peer = hosts::peers(&place, &meta.device, &info)?.pop();
    request::check_path(&meta.path, (&meta.device, &info), peer.as_slice())?;
    for rate in &args.rates {
        let at_rate = PathOptions {
            rate: Some(*rate),
            ..PathOptions::default()
        };
        let checked = at_rate.check(&info.port);
        checked.map_err(|refused| Usage(format!("--rates: {refused}")))?;
    }
    if !matches!(meta.device, DeviceChoice::Model(_)) {
        let shared = request::shared_core(&place);
        shared.iter().for_each(|line| terminal::warn(line));
    }
    Ok(StudyDevice {
        device: meta.device.clone(),
        info,
        peer,
        place,
    })
}

/// A device that the first one is compared with; both sides run on this host.
fn another_place(
    device: &DeviceChoice,
    args: &StudyArgs,
    meta: &Meta,
) -> anyhow::Result<StudyDevice> {
    if meta.peer.is_some() {
        return Err(Usage(format!(
            "--device {device}: with --peer a study is of one device; measure this one into a folder of its own, and make one report of both"
        ))
        .into());
    }
    let mut place = args.place.clone();
    if matches!(device, DeviceChoice::Model(_)) {
        place = PlaceArgs::default();
    }
    request::check_places(device, &place, Shape::Pair)?;
    let info = DeviceInfo::query(device)?;
    request::check_path(&meta.path, (device, &info), &[])?;
    Ok(StudyDevice {
        device: device.clone(),
        info,
        peer: None,
        place,
    })
}

fn new_meta(args: &StudyArgs) -> Result<Meta, Usage> {
    let device = args.device.choice();
    let profile = args.profile.unwrap_or(Profile::Quick);
    let mut meta = Meta::new(
        profile,
        &asked_figures(args)?,
        device,
        args.place.peer.first().cloned(),
    );
    meta.path = args.path.options()?;
    meta.rates.clone_from(&args.rates);
    let devices = args.device.each().into_iter();
    meta.other_devices = devices.skip(1).map(|device| device.choice()).collect();
    meta.label.clone_from(&args.label);
    Ok(meta)
}

/// Returns the folder's parameters with the requested figures added. Other arguments must agree with the
/// folder, except the server's address, which may have changed.
fn resumed(args: &StudyArgs, mut meta: Meta) -> Result<Meta, Usage> {
    let same = |what: &str, typed: Option<String>, there: String| match typed {
        Some(typed) if typed != there => Err(Usage(format!(
            "{what} {typed}: the folder's study has {what} {there}; leave out {what}, or choose another --out"
        ))),
        _ => Ok(()),
    };
    let is_another = |study: &StudyId| {
        let name = |own: &'static ProgramStudy| own.id;
        study.of_programs().map(name) != meta.programs().map(name)
    };
    if let Some(study) = args.study.filter(is_another) {
        return Err(Usage(format!(
            "--study {study}: the folder's study is another one; choose another --out"
        )));
    }
    let text = |profile: Profile| profile.to_string();
    same("--profile", args.profile.map(text), text(meta.profile))?;
    let list = |addresses: &[DeviceChoice]| {
        let addresses = addresses.iter().map(DeviceChoice::to_string);
        addresses.collect::<Vec<_>>().join(",")
    };
    let there = meta.devices();
    let typed = args.device.named().map(|_| list(&args.device.all()));
    same("--device", typed, list(&there[0]))?;
    for device in args.device.each().iter().skip(1).map(DeviceArgs::all) {
        if !there.contains(&device) {
            return Err(Usage(format!(
                "--device {}: not a device of the folder's study; choose another --out, and make one report of both",
                list(&device)
            )));
        }
    }
    let or_default = |there: Option<String>| there.unwrap_or_else(|| "the default".to_owned());
    let (now, before) = (flags_of(&args.path.options()?), flags_of(&meta.path));
    for ((flag, typed), (_, there)) in now.into_iter().zip(before) {
        same(flag, typed, or_default(there))?;
    }
    same(
        "--label",
        args.label.clone(),
        or_default(meta.label.clone()),
    )?;
    for rate in &args.rates {
        if !meta.rates.is_empty() && !meta.rates.contains(rate) {
            meta.rates.push(*rate);
        }
    }
    if let Some(peer) = args.place.peer.first() {
        if meta.peer.is_none() {
            return Err(Usage(format!(
                "--peer {peer}: both sides of the folder's study ran on this host; leave out --peer, or choose another --out"
            )));
        }
        meta.peer = Some(peer.clone());
    }
    if !meta.only.is_empty() {
        let known = meta.only.clone();
        let asked = asked_figures(args)?.into_iter();
        meta.only
            .extend(asked.filter(|figure| !known.contains(figure)));
    }
    Ok(meta)
}
