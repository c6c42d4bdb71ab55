//! `thalweg resources`: files that agents have beside their flows.

use std::path::PathBuf;

use clap::Subcommand;
use reqwest::Method;
use tokio_util::io::ReaderStream;

use super::client::{download, query, segment};
use super::{Client, Failure};

#[derive(Subcommand)]
pub enum Command {
    /// List resources.
    List,
    /// Upload a file; `thalweg classes resources CLASS --assign ID` gives it to agents.
    #[command(after_help = UPLOAD_HELP)]
    Upload {
        /// Its name on the agents; if not given, the file's.
        #[arg(long)]
        name: Option<String>,
        /// The folder on the agents, relative to that of their assets.
        #[arg(long)]
        path: Option<String>,
        /// Words for those who find it in the list.
        #[arg(long)]
        notes: Option<String>,
        /// It is an extension: code with processors, for Java agents.
        #[arg(long)]
        extension: bool,
        /// The file.
        file: PathBuf,
    },
    /// Fetch a resource's content.
    Fetch {
        /// The resource's id.
        id: String,
        /// The file to write it to.
        to: PathBuf,
    },
    /// Remove a resource that no class has.
    Remove {
        /// The resource's id.
        id: String,
    },
}

pub async fn run(client: Client, command: Command) -> Result<(), Failure> {
    match command {
        Command::List => {
            let answer = client.get("/api/v1/resources").await?;
            client.print_list(&answer, "resources", &RESOURCE_COLUMNS);
        }
        Command::Upload {
            name,
            path,
            notes,
            extension,
            file,
        } => {
            let own = file
                .file_name()
                .map(|name| name.to_string_lossy().into_owned());
            let kind = if extension { "EXTENSION" } else { "ASSET" };
            let wanted = [
                ("name", name.or(own)),
                ("type", Some(kind.to_owned())),
                ("path", path),
                ("notes", notes),
            ];
            let content = tokio::fs::File::open(&file).await.map_err(|error| {
                Failure::because(&format!("cannot read {}", file.display()), &error)
            })?;
            let body = ReaderStream::with_capacity(content, UPLOAD_PIECE_BYTES);
            let address = format!("/api/v1/resources{}", query(wanted));
            let request = client.request(Method::POST, &address);
            let request = request.body(reqwest::Body::wrap_stream(body));
            client.print_object(&client.send(request).await?);
        }
        Command::Fetch { id, to } => {
            let path = format!("/api/v1/resources/{}/content", segment(&id));
            download(&client, &path, &to).await.map(drop)?;
        }
        Command::Remove { id } => {
            let path = format!("/api/v1/resources/{}", segment(&id));
            client.send(client.request(Method::DELETE, &path)).await?;
        }
    }
    Ok(())
}

/// Bytes read of a file at a time.
const UPLOAD_PIECE_BYTES: usize = 256 << 10;

/// A resource in a list.
pub const RESOURCE_COLUMNS: [(&str, &str); 6] = [
    ("RESOURCE", "id"),
    ("NAME", "name"),
    ("TYPE", "type"),
    ("PATH", "path"),
    ("BYTES", "bytes"),
    ("UPLOADED", "created_ms"),
];

const UPLOAD_HELP: &str = "\
Examples:
  thalweg resources upload lookup.csv --path tables
  thalweg resources list
  thalweg classes resources edge --assign ID";
