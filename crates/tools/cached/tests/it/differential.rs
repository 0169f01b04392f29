//! The same commands give the same answers from memcached 1.6 and from us.

use adverb_units::Bytes;
use adverb_workload::random::Random;

use crate::common::{Client, Ours, Theirs};

/// Commands with the answers of their kind; each line is sent with `\r\n`, which `|` is, too.
const SCRIPT: &str = "
get a
set a 5 0 3|abc
get a
gets a b
get a a
set a 5 0 3 noreply|xyz
get a
add a 1 0 1|1
add b 7 0 1|1
replace c 0 0 1|1
replace b 8 0 2|22
append b 1 0 2|33
prepend b 1 0 2|11
get b
append c 0 0 1|1
prepend c 0 0 1|1
cas b 0 0 1 999999|1
cas c 0 0 1 1|1
incr b 5
incr a 5
incr c 5
decr b 112240
decr b 1
get b
set n 3 0 2|10
incr n 1
get n
incr n x
incr n -1
incr n 18446744073709551615
incr n 18446744073709551616
set n 0 0 20|18446744073709551615
incr n 1
get n
touch a 100
touch c 100
gat 100 a
gats 100 a b
gat 100
gat x a
gat
delete a
delete a
delete b 0
set d 0 0 1|1
delete d 5
delete d noreply
delete d 0 noreply
get d
set e 0 -1 1|1
get e
set f 4294967295 0 1|1
get f
set f -1 0 1|1
set f 0 0 -1|
set f 0 x 1|
set f 0 0 x|
set f 0 0
set f
set
get
gets
bogus
GET a
set g 0 0 3|abcd
get g
set g 0 0 0|
get g
flush_all
get g
flush_all noreply
flush_all 0
verbosity
verbosity 1
verbosity 1 noreply
verbosity noreply
verbosity foo
verbosity 0 foo bar
flush_all foo
flush_all -1
set a 0 0 1 foo|1
set a 0 0 1 foo bar
touch a 1 foo bar
mn foo
set h 0 0 5|hello
mg h
mg h v
mg h s v
mg h f s t v k
mg h h
mg h h
mg h k O123
mg nothing
mg nothing v k Oabc
mg nothing q
mg
mg h v v
mg h !
mg h E5
mg new N0 E5 c
ms h 2 S2|hi
ms i 2|hi
mg i v f t
ms i 2 T30 F7|ho
mg i v f t s
ms i 2 ME|no
ms j 2 ME|yo
ms k 2 MR|no
ms i 2 MA|++
ms i 2 MP|--
mg i v f
ms k 2 MA|no
ms i 2 q|qq
ms i 2 k Oxy|qq
ms i 2 MX|xx
ms i x
ms i
ms aGVsbG8= 2 b|bb
mg hello v
mg aGVsbG8= b v k
mg !!! b
md i
md i
md j q
md j q
md j k O1
ma n1
ma n1 N0 J13 v
ma n1 v
ma n1 D10 v
ma n1 MD D3 v t
ma n1 q
mg n1 v
ma n1 M-
ma none q
ma none k Oz
md none k Oz
mg h Tx
ms h 1 Tx|1
md
ma
me
ms
ma h
ma h MX
me nothing
ms st 2 T100|st
md st I T30
mg st t v
mg st t v
mg st v c
ms st 2|nw
mg st v t
mg viv N30 v t
mg viv N30 v
mg viv v
mg rec N0
ms rec 2 T10|rr
mg rec R30 v
mg rec R30 v
mg rec R5 v
mg rec T90 t
mn
";

fn lines() -> Vec<Vec<u8>> {
    let lines = SCRIPT.lines().filter(|line| !line.is_empty());
    lines
        .map(|line| format!("{}\r\n", line.replace('|', "\r\n")).into_bytes())
        .collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns an answer with `N` in place of the unique numbers of items, which differ between servers: the last number of
/// a line `VALUE` with four, and what follows the flag `c`.
fn without_cas(answer: &str) -> String {
    let line = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let is_cas = |(place, word): (usize, &&str)| match (words[0], place) {
            ("VALUE", 4) => true,
            ("VA" | "HD", _) => word.starts_with('c'),
            _ => false,
        };
        let words = words.iter().enumerate();
        let words = words.map(|word| if is_cas(word) { "N" } else { word.1 });
        words.collect::<Vec<_>>().join(" ")
    };
    answer
        .split("\r\n")
        .map(line)
        .collect::<Vec<_>>()
        .join("\r\n")
}

#[test]
fn the_same_commands_give_the_same_answers() {
    let Some(theirs) = Theirs::start("the_same_commands_give_the_same_answers") else {
        return;
    };
    let ours = Ours::start(Bytes::mib(64), true, 10);
    let mut both = [ours.connect(), Client::new(theirs.address)];
    let mut wrong = Vec::new();
    for line in lines() {
        let [ours, theirs] = both.each_mut().map(|client| text(&client.ask(&line)));
        if without_cas(&ours) != without_cas(&theirs) {
            wrong.push(format!(
                "{:?}: ours {ours:?}, theirs {theirs:?}",
                text(&line)
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Two servers under the same random commands; sizes stay small enough that neither evicts.
#[test]
fn random_commands_give_the_same_answers() {
    let Some(theirs) = Theirs::start("random_commands_give_the_same_answers") else {
        return;
    };
    let ours = Ours::start(Bytes::mib(64), true, 10);
    let mut both = [ours.connect(), Client::new(theirs.address)];
    let mut random = Random::new(11);
    for round in 0..60 {
        let mut commands = Vec::new();
        for _ in 0..200 {
            one(&mut random, &mut commands);
        }
        let [ours, theirs] = both.each_mut().map(|client| text(&client.ask(&commands)));
        let same = ours.bytes().zip(theirs.bytes()).take_while(|(a, b)| a == b);
        let from = same.count().saturating_sub(100);
        assert!(
            ours == theirs,
            "round {round}: ours {:?}, theirs {:?}",
            text(&ours.as_bytes()[from..(from + 200).min(ours.len())]),
            text(&theirs.as_bytes()[from..(from + 200).min(theirs.len())]),
        );
    }
}

fn one(random: &mut Random, commands: &mut Vec<u8>) {
    let key = format!("k{}", random.below(12));
    let length = match random.below(20) {
        0 => random.below(10_000),
        _ => random.below(40),
    };
    let value = match random.chance(0.4) {
        true => random.below(1 << 40).to_string(),
        false => "v".repeat(length as usize),
    };
    let length = value.len();
    let flags = random.below(1 << 32);
    let silent = if random.chance(0.2) { " noreply" } else { "" };
    let line = match random.below(16) {
        0..=1 => format!("set {key} {flags} 0 {length}{silent}\r\n{value}"),
        2 => format!("add {key} {flags} 0 {length}{silent}\r\n{value}"),
        3 => format!("replace {key} {flags} 0 {length}{silent}\r\n{value}"),
        4 => format!("append {key} 0 0 {length}{silent}\r\n{value}"),
        5 => format!("prepend {key} 0 0 {length}{silent}\r\n{value}"),
        6 => format!("incr {key} {}{silent}", random.below(1000)),
        // Of a number that gets shorter, memcached keeps the length or not, depending on its background threads.
        7 => format!("incr {key} {}{silent}", random.below(1 << 40)),
        8 => format!("delete {key}{silent}"),
        9 => format!("touch {key} 1000"),
        10 => format!("gat 1000 {key} k1"),
        11 => format!("ms {key} {length} F{flags} k\r\n{value}"),
        12 => format!("mg {key} s v f"),
        13 => format!("ma {key} N0 J5 v"),
        14 => format!("md {key} q"),
        _ => format!("get {key} k1 k2 k3"),
    };
    commands.extend_from_slice(line.as_bytes());
    commands.extend_from_slice(b"\r\n");
}
