//! The parameters of a preset, as a table: `parameters [PRESET]`.

use std::process::ExitCode;

use adverb_hwmodel::Preset;

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_else(|| "cx3".into());
    let preset = match Preset::built_in(&name) {
        Ok(preset) => preset,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    println!("| parameter | value | meaning | source |");
    println!("|---|---:|---|---|");
    for field in preset.fields() {
        println!(
            "| `{}` | {} | {} | {} |",
            field.path,
            (field.get)(&preset.params),
            field.doc.trim().trim_end_matches('.'),
            preset.source(field.path).unwrap_or("-"),
        );
    }
    ExitCode::SUCCESS
}
