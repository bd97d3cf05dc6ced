//! A principal, what it may do, and what it may be done to.

use std::fmt;
use std::sync::Arc;

use weir_protocol::ids::Name;

/// An authenticated caller. Cheap to clone: one lives in every request and WebSocket.
#[derive(Debug, Clone)]
pub struct Principal {
    /// Owner of everything it sees.
    pub tenant: Name,
    /// What it may do.
    pub grants: Arc<Grants>,
}

impl Principal {
    /// A caller of `tenant` who may do everything.
    #[must_use]
    pub fn all(tenant: Name) -> Self {
        Self { tenant, grants: Arc::new(Grants::All) }
    }

    /// A caller of `tenant` with these grants and no others.
    #[must_use]
    pub fn with_grants(tenant: Name, grants: Vec<Grant>) -> Self {
        Self { tenant, grants: Arc::new(Grants::Only(grants)) }
    }
}

/// Everything, or a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grants {
    /// Every operation on every resource of the tenant.
    All,
    /// What one of these allows. An empty list allows nothing.
    Only(Vec<Grant>),
}

/// Operations on the topics and subscriptions of the namespaces that match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Namespaces.
    pub namespaces: Pattern,
    /// Topics in them. Operations on a namespace itself need [`Pattern::any`] here …
    pub topics: Pattern,
    /// … and here: subscriptions in them. A subscription's topic is not asked for whoever consumes it: that was
    /// decided when it was made.
    pub subscriptions: Pattern,
    /// What may be done.
    pub ops: OpSet,
}

/// An exact name, or a prefix ending in `*`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(PatternKind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternKind {
    Exact(String),
    Prefix(String),
}

impl Pattern {
    /// Reads a pattern. `*` is legal only as the last character; anywhere else it is an ordinary character,
    /// which no name contains.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(match text.strip_suffix('*') {
            Some(prefix) => PatternKind::Prefix(prefix.to_owned()),
            None => PatternKind::Exact(text.to_owned()),
        })
    }

    /// `*`: every name.
    #[must_use]
    pub fn any() -> Self {
        Self(PatternKind::Prefix(String::new()))
    }

    /// True if it matches every name.
    #[must_use]
    pub fn is_any(&self) -> bool {
        matches!(&self.0, PatternKind::Prefix(prefix) if prefix.is_empty())
    }

    /// True if it matches every name that begins so.
    #[must_use]
    pub fn covers(&self, beginning: &str) -> bool {
        matches!(&self.0, PatternKind::Prefix(prefix) if beginning.starts_with(prefix.as_str()))
    }

    /// True if `name` matches.
    #[must_use]
    pub fn matches(&self, name: &Name) -> bool {
        match &self.0 {
            PatternKind::Exact(exact) => name.as_str() == exact,
            PatternKind::Prefix(prefix) => name.as_str().starts_with(prefix.as_str()),
        }
    }
}

macro_rules! ops {
    ($($(#[$doc:meta])* $variant:ident = $bit:literal, $text:literal;)+) => {
        /// What a request does. Every operation of the API has exactly one.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u16)]
        pub enum Op { $($(#[$doc])* $variant = 1 << $bit,)+ }

        impl Op {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name grants use.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

ops! {
    /// See that the gateway is alive, what it offers and what its limits are.
    Status = 0, "status";
    /// Read the gateway's metrics.
    Metrics = 1, "metrics";
    /// Open a WebSocket; each `open` and `sub` on it is authorised on its own.
    Connect = 2, "connect";
    /// List namespaces, topics or subscriptions.
    List = 3, "list";
    /// See a configuration, offsets and rates.
    Describe = 4, "describe";
    /// Create, change or delete.
    Manage = 5, "manage";
    /// Publish, and ask what became of a publish.
    Publish = 6, "publish";
    /// Read and follow messages.
    Subscribe = 7, "subscribe";
    /// Lease messages of a subscription and settle them.
    Consume = 8, "consume";
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of [`Op`]s.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpSet(u16);

impl OpSet {
    /// The set of these.
    #[must_use]
    pub fn of(ops: &[Op]) -> Self {
        Self(ops.iter().fold(0, |bits, &op| bits | op as u16))
    }

    /// True if `op` is one of them.
    #[must_use]
    pub const fn contains(self, op: Op) -> bool {
        self.0 & op as u16 != 0
    }
}

/// What an operation is done to. Always within the principal's tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource<'a> {
    /// The gateway itself, and what belongs to no namespace.
    Gateway,
    /// A namespace.
    Namespace(&'a Name),
    /// A topic.
    Topic {
        /// Its namespace.
        namespace: &'a Name,
        /// Its name.
        topic: &'a Name,
    },
    /// Every topic whose name begins so, now and later.
    Topics {
        /// Their namespace.
        namespace: &'a Name,
        /// The beginning; may be empty.
        prefix: &'a str,
    },
    /// A subscription.
    Subscription {
        /// Its namespace.
        namespace: &'a Name,
        /// Its name.
        subscription: &'a Name,
    },
}

impl fmt::Display for Resource<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gateway => f.write_str("gateway"),
            Self::Namespace(namespace) => write!(f, "ns/{namespace}"),
            Self::Topic { namespace, topic } => write!(f, "ns/{namespace}/topics/{topic}"),
            Self::Topics { namespace, prefix } => write!(f, "ns/{namespace}/topics/{prefix}*"),
            Self::Subscription { namespace, subscription } => {
                write!(f, "ns/{namespace}/subscriptions/{subscription}")
            }
        }
    }
}
