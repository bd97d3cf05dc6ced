//! What can be typed about namespaces.

use clap::{Args as ClapArgs, Subcommand};

/// What can be done with namespaces.
#[derive(Debug, Subcommand)]
pub(crate) enum NamespaceCommand {
    /// List namespaces with their settings
    #[command(visible_alias = "ls")]
    List {
        /// Only names that contain this text
        #[arg(long, value_name = "TEXT")]
        query: Option<String>,
        /// Stop after this many
        #[arg(long, default_value_t = 1000, value_name = "N")]
        limit: u32,
    },
    /// Create a namespace; does nothing if it exists with the same settings
    #[command(
        after_help = "Other commands use it with --ns or WEIR_NS.\n\nExamples:\n  weir namespace create shop\n  \
        weir namespace create shop --auto-create true --origin https://shop.example\n  \
        weir --ns shop topic create orders"
    )]
    Create {
        /// Name: A-Z a-z 0-9 . _ ~ -
        name: String,
        /// Settings
        #[command(flatten)]
        settings: NamespaceFields,
    },
    /// Show a namespace's settings
    #[command(visible_alias = "show")]
    Get {
        /// Name
        name: String,
    },
    /// Change settings of a namespace; the others stay as they are
    #[command(
        after_help = "--origin names all that may use it from then on.\n\nExamples:\n  weir namespace set default --auto-create false\n  \
        weir namespace set shop --origin https://a.example --origin https://b.example\n  \
        weir namespace set shop --no-origins"
    )]
    Set {
        /// Name
        name: String,
        /// Settings
        #[command(flatten)]
        settings: NamespaceFields,
    },
    /// Delete a namespace that has no topics and no subscriptions
    #[command(visible_alias = "rm")]
    Delete {
        /// Name
        name: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

/// A namespace's settings, as flags. Absent flags leave the server's default (create) or value (set).
#[derive(Debug, Default, ClapArgs)]
pub(crate) struct NamespaceFields {
    /// Publishing to a topic that does not exist creates it (true), or is refused (false) [default: false]
    #[arg(long, value_name = "BOOL")]
    pub(crate) auto_create: Option<bool>,
    /// Browser origin that may use it, as the examples have it; repeat it for more [default: none]
    #[arg(long = "origin", value_name = "ORIGIN", conflicts_with = "no_origins")]
    pub(crate) origins: Vec<String>,
    /// No browser origin may use it but those that the gateway itself allows
    #[arg(long)]
    pub(crate) no_origins: bool,
}
