//! The little option parser that the three examples share: `--name value` and `--name` for switches.

use std::collections::HashMap;
use std::fmt::{Debug, Display};
use std::str::FromStr;

/// An option: name, default (empty for a switch that is off), help.
pub type Option = (&'static str, &'static str, &'static str);

/// The options given, or their defaults.
pub struct Args(HashMap<&'static str, String>);

impl Args {
    /// Reads the command line; prints what is wrong, or the help, and exits if it cannot be read.
    pub fn read(purpose: &str, options: &[Option]) -> Args {
        let mut values: HashMap<_, _> = options
            .iter()
            .map(|(name, value, _)| (*name, value.to_string()))
            .collect();
        let mut given = std::env::args().skip(1).peekable();
        while let Some(argument) = given.next() {
            let name = argument.trim_start_matches("--");
            let Some((name, _, _)) = options.iter().find(|(known, _, _)| *known == name) else {
                let asked = name == "help" || name == "-h";
                eprintln!("{purpose}\n");
                for (name, default, help) in options {
                    let default = if default.is_empty() {
                        String::new()
                    } else {
                        format!(" [{default}]")
                    };
                    eprintln!("  --{name:<14} {help}{default}");
                }
                if !asked {
                    eprintln!("\nunknown option {argument:?}");
                }
                std::process::exit(if asked { 0 } else { 2 });
            };
            let value = given
                .next_if(|next| !next.starts_with("--"))
                .unwrap_or_else(|| "true".into());
            values.insert(*name, value);
        }
        Args(values)
    }

    /// The text of an option.
    pub fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    /// Whether a switch is on.
    #[allow(dead_code, reason = "not every example has switches")]
    pub fn on(&self, name: &str) -> bool {
        self.text(name) == "true"
    }

    /// The value of an option; exits if it cannot be read as one.
    pub fn value<T: FromStr<Err: Display + Debug>>(&self, name: &str) -> T {
        self.text(name).parse().unwrap_or_else(|error| {
            eprintln!("--{name} {:?}: {error}", self.text(name));
            std::process::exit(2)
        })
    }
}
