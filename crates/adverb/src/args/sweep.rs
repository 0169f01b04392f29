//! Sweeps: a numeric flag with several values is expanded to one command line per value.
//!
//! `--size 8,64 --buffers 1..4` becomes six command lines, each parsed as if it had been typed. A new
//! numeric flag can therefore be swept without any code.

use std::ffi::OsString;

use adverb_units::{Bytes, ParseSweepError, Sweep};
use clap::{Arg, Command};

/// Type of a flag's values, by their name in the help.
#[derive(Clone, Copy)]
enum Kind {
    /// A whole number.
    Number,
    /// `SIZE`: bytes, also as `4K`.
    Size,
    /// A number with a unit, a fraction, or one of several words. Takes lists, but no ranges.
    Listed,
}

impl Kind {
    fn of(arg: &Arg) -> Option<Self> {
        match arg.get_value_names()?.first()?.as_str() {
            "N" | "BYTES" | "CLASS" | "LEVEL" | "PACKETS" => Some(Kind::Number),
            "SIZE" => Some(Kind::Size),
            "HOW" | "RATE" | "SHARE" | "TIME" => Some(Kind::Listed),
            _ => None,
        }
    }

    /// Expands a flag's value to its points, each as it would be typed.
    fn points(self, text: &str) -> Result<Vec<String>, String> {
        let numbers: Result<Vec<u64>, _> = match self {
            Kind::Number => text.parse().map(|all: Sweep<u64>| all.points().to_vec()),
            Kind::Size => text.parse().map(|all: Sweep<Bytes>| {
                let sizes = all.points().iter();
                sizes.map(|size| size.get()).collect()
            }),
            Kind::Listed => return Ok(text.split(',').map(str::to_owned).collect()),
        };
        let numbers = numbers.map_err(|e: ParseSweepError| e.to_string())?;
        Ok(numbers.iter().map(u64::to_string).collect())
    }
}

/// Expands `argv` to its command lines, in the order in which they are measured: the last swept flag changes
/// fastest.
///
/// # Errors
/// The values of a flag are not a valid sweep.
pub(super) fn expanded(
    command: &Command,
    argv: Vec<OsString>,
) -> Result<Vec<Vec<OsString>>, String> {
    let subcommand = argv
        .iter()
        .skip(1)
        .find_map(|word| command.find_subcommand(word));
    // What follows the name of another program is that program's.
    let starts_program = |command: &&Command| {
        let mut arguments = command.get_arguments();
        arguments.any(Arg::is_trailing_var_arg_set)
    };
    let Some(subcommand) = subcommand.filter(|command| !starts_program(command)) else {
        return Ok(vec![argv]);
    };
    let mut lines: Vec<Vec<OsString>> = vec![Vec::with_capacity(argv.len())];
    let mut words = argv.into_iter();
    while let Some(word) = words.next() {
        let text = word.to_str().unwrap_or_default();
        let (flag, joined) = match text.split_once('=') {
            Some((flag, value)) => (flag, Some(value.to_owned())),
            None => (text, None),
        };
        let mut arguments = subcommand.get_arguments();
        let kind = arguments.find(|arg| is_of(arg, flag)).and_then(Kind::of);
        let Some(kind) = kind else {
            lines.iter_mut().for_each(|line| line.push(word.clone()));
            continue;
        };
        let flag = flag.to_owned();
        let value = match joined {
            Some(value) => Some(value.into()),
            None => words.next(),
        };
        let Some(value) = value else {
            // The parser reports the missing value.
            lines.iter_mut().for_each(|line| line.push((&flag).into()));
            continue;
        };
        let points = match value.to_str() {
            Some(text) if text.contains(',') || text.contains("..") => {
                let points = kind.points(text);
                let points = points.map_err(|reason| format!("{flag}: {reason}"))?;
                points.into_iter().map(OsString::from).collect()
            }
            _ => vec![value],
        };
        lines = lines
            .iter()
            .flat_map(|line| points.iter().map(move |point| (line, point)))
            .map(|(line, point)| [&line[..], &[flag.clone().into(), point.clone()]].concat())
            .collect();
    }
    Ok(lines)
}

/// Whether `flag` is the name of an argument, or another name of it.
fn is_of(arg: &Arg, flag: &str) -> bool {
    match (flag.strip_prefix("--"), flag.strip_prefix('-')) {
        (Some(long), _) => {
            let aliases = arg.get_all_aliases().unwrap_or_default();
            arg.get_long() == Some(long) || aliases.contains(&long)
        }
        (None, Some(short)) => arg.get_short().is_some_and(|c| short.chars().eq([c])),
        (None, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(typed: &str) -> Result<Vec<String>, String> {
        let flag =
            |name: &'static str, value: &'static str| Arg::new(name).long(name).value_name(value);
        let command = Command::new("adverb").subcommand(
            Command::new("go")
                .arg(flag("size", "SIZE"))
                .arg(flag("qps", "N").short('q').visible_alias("pairs"))
                .arg(flag("loss", "SHARE"))
                .arg(flag("cpu", "CORES")),
        );
        let argv = typed.split(' ').map(OsString::from).collect();
        let lines = expanded(&command, argv)?.into_iter();
        let joined = |line: Vec<OsString>| line.join(" ".as_ref()).into_string().unwrap();
        Ok(lines.map(joined).collect())
    }

    #[test]
    fn each_combination_is_a_line_and_other_lists_stay() {
        assert_eq!(
            lines("adverb go --size 8,1K --qps=1..2 --cpu 0,1").unwrap(),
            [
                "adverb go --size 8 --qps 1 --cpu 0,1",
                "adverb go --size 8 --qps 2 --cpu 0,1",
                "adverb go --size 1024 --qps 1 --cpu 0,1",
                "adverb go --size 1024 --qps 2 --cpu 0,1",
            ]
        );
        for (typed, expected) in [
            ("--pairs 2..4", ["--pairs 2", "--pairs 4"]),
            ("-q 2,3", ["-q 2", "-q 3"]),
            ("--loss 0,1%", ["--loss 0", "--loss 1%"]),
        ] {
            let expected = expected.map(|flag| format!("adverb go {flag}"));
            assert_eq!(lines(&format!("adverb go {typed}")).unwrap(), expected);
        }
        for typed in [
            "adverb go --size 4K",
            "adverb go --size",
            "adverb go --size x",
            "adverb",
        ] {
            assert_eq!(lines(typed).unwrap(), [typed]);
        }
    }

    /// `--timeout 1ms,16ms` and `--put 0,0.5` were refused.
    #[test]
    fn every_numeric_option_of_a_program_takes_a_list() {
        // Names, words, places, and what all points have in common.
        let others = [
            "RUNS",
            "DEV",
            "FILE",
            "INDEX",
            "HOST[:PORT]",
            "ADDR:PORT",
            "ROLE=HOST,…",
            "N,N",
            "WHICH",
            "KIND",
            "DIR",
            "TEXT",
            "ADDR",
            "NODE",
            "READ:WRITE",
        ];
        let all = crate::args::command();
        for program in [
            "ping",
            "blast",
            "closed-loop",
            "open-loop",
            "sequencer",
            "kv",
            "rpc",
            "store",
            "sync",
            "connect",
            "mcast",
            "overlap",
            "fetch",
            "interference",
            "rendezvous",
        ] {
            let program = all.find_subcommand(program).unwrap();
            let named = program
                .get_opts()
                .filter(|arg| arg.get_action().takes_values());
            for arg in
                named.filter(|arg| !["op", "color", "completion"].contains(&arg.get_id().as_str()))
            {
                let name = arg.get_value_names().unwrap()[0].as_str();
                assert!(Kind::of(arg).is_some() || others.contains(&name), "{arg}");
            }
        }
    }

    #[test]
    fn a_sweep_without_points_names_its_flag() {
        let error = lines("adverb go --qps 8..4").unwrap_err();
        assert!(error.starts_with("--qps: '8..4' has no points"), "{error}");
    }
}
