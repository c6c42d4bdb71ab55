//! Every bound of the agent, each with its unit and its reason.

use std::time::Duration;

/// Bytes of one flow definition; a fleet's largest flows are a few hundred KiB.
pub const FLOW_TEXT_BYTES_MAX: usize = 16 << 20;

/// Bytes of one answer of the control plane; it carries operations, never content.
pub const CONTROL_ANSWER_BYTES_MAX: usize = 4 << 20;

/// Depth of nested process groups; deeper is a loop or a mistake.
pub const GROUP_DEPTH_MAX: usize = 32;

/// Depth of nested subjects and arguments in one expression, so that parsing cannot overflow.
pub const EXPRESSION_DEPTH_MAX: usize = 32;

/// Bytes of one expression's result: attributes are small words, content is elsewhere.
pub const EXPRESSION_RESULT_BYTES_MAX: usize = 1 << 20;

/// Depth of expressions that are made of texts while they are evaluated (`evaluateELString`).
pub const EXPRESSION_STRINGS_DEPTH_MAX: usize = 4;

/// Pieces that one FlowFile is split into at most: they are made in one session.
pub const SPLITS_MAX: usize = 1_000_000;

/// Steps of one search by a pattern that looks around or back, whose time nothing else bounds: some
/// milliseconds.
pub const PATTERN_STEPS_MAX: usize = 100_000;

/// Bytes of one line where lines are changed one after the other; longer ones are no text.
pub const TEXT_LINE_BYTES_MAX: usize = 64 << 20;

/// Depth of one Jolt specification; its walk is recursive.
pub const SHIFT_DEPTH_MAX: usize = 64;

/// Places of a list that a Jolt specification can name.
pub const SHIFT_INDEX_MAX: usize = 1_000_000;

/// Pieces of one source that wait for the rest of a message in one DefragmentText.
pub const DEFRAGMENT_KEPT_MAX: usize = 100_000;

/// FlowFiles that RouteText makes of one: one for each route and group.
pub const TEXT_GROUPS_MAX: usize = 10_000;

/// Fields of one record: more are no table.
pub const RECORD_FIELDS_MAX: usize = 10_000;

/// Groups that one query over records makes, each held in memory.
pub const QUERY_GROUPS_MAX: usize = 100_000;

/// Rows that one query over records sorts or compares, each held in memory.
pub const QUERY_ROWS_MAX: usize = 500_000;

/// Bytes of one record of XML, whose texts and elements stand in memory together.
pub const RECORD_BYTES_MAX: usize = 64 << 20;

/// Bytes of one block of an Avro file, packed or not, which stands in memory as a whole; writers
/// make blocks of 64 KB.
pub const AVRO_BLOCK_BYTES_MAX: usize = 64 << 20;

/// Bytes of what an Avro file begins with: its schema and metadata.
pub const AVRO_HEADER_BYTES_MAX: usize = 4 << 20;

/// Values of one Avro record: some have no bytes of their own, but all have memory.
pub const AVRO_VALUES_MAX: usize = 4_000_000;

/// Depth of an Avro schema and of a value, whose reading is recursive.
pub const AVRO_DEPTH_MAX: usize = 64;

/// Types of one Avro schema.
pub const AVRO_NODES_MAX: usize = 100_000;

/// Records that an Avro schema is found from, held in memory until then.
pub const AVRO_GUESS_RECORDS_MAX: usize = 1_000;

/// Bytes of one SQL statement with its arguments' texts not counted in.
pub const SQL_STATEMENT_BYTES_MAX: u64 = 1 << 20;

/// How long a database may take to let the agent in.
pub const SQL_CONNECT_WAIT: Duration = Duration::from_secs(30);

/// How long a database may take for a statement, or from one row to the next: longer is a lock
/// that nobody releases.
pub const SQL_ANSWER_WAIT: Duration = Duration::from_secs(600);

/// Depth of elements in one record of XML.
pub const XML_DEPTH_MAX: usize = 128;

/// FlowFiles that a connection holds before its source rests; MiNiFi C++'s own default.
pub const CONNECTION_FLOW_FILES_DEFAULT: u64 = 2_000;

/// Bytes that a connection holds before its source rests; MiNiFi C++'s own default.
pub const CONNECTION_BYTES_DEFAULT: u64 = 100 << 20;

/// New content that a session keeps in memory for its commit's frame; more is written ahead.
pub const SESSION_CONTENT_BYTES_MAX: usize = 4 << 20;

/// Bytes of one claim at most, and so of one frame of content.
pub const CLAIM_BYTES_MAX: usize = 8 << 20;

/// Bytes of content that are read, written and checked at a time.
pub const CONTENT_PIECE_BYTES: usize = 2 << 20;

/// Bytes of content that a processor may ask for in one piece; more is read as a stream.
pub const CONTENT_READ_BYTES_MAX: u64 = 64 << 20;

/// Views of one FlowFile's content; a rope of more small ones is copied together.
pub const CONTENT_VIEWS_MAX: usize = 4_096;

/// Bytes of volatile content, where nothing else is said.
pub const VOLATILE_BYTES_DEFAULT: u64 = 64 << 20;

/// Claims of volatile content, where nothing else is said; MiNiFi's own default of 2017.
pub const VOLATILE_COUNT_DEFAULT: u64 = 10_000;

/// How long a session waits for room in volatile content before it is put back for later.
pub const VOLATILE_WAIT: Duration = Duration::from_millis(500);

/// Bytes of provenance events on the disk, where nothing else is said.
pub const PROVENANCE_BYTES_DEFAULT: u64 = 256 << 20;

/// Bytes of provenance events that are written together.
pub const PROVENANCE_FRAME_BYTES: u64 = 32 << 10;

/// Bytes of provenance events that wait in memory while they cannot be written.
pub const PROVENANCE_PENDING_BYTES_MAX: u64 = 4 << 20;

/// Bytes of one segment of provenance events at least: a frame of them fits well.
pub const PROVENANCE_SEGMENT_BYTES_MIN: u64 = 128 << 10;

/// Bytes of one segment of provenance events, which go as a whole.
pub const PROVENANCE_SEGMENT_BYTES_MAX: u64 = 32 << 20;

/// FlowFiles that one session takes or makes: bounds its memory and its frame.
pub const SESSION_FLOW_FILES_MAX: usize = 20_000;

/// Bytes of attributes that one session takes or sends on before it is committed: with each FlowFile's
/// own they stand in memory several times over.
pub const SESSION_ATTRIBUTE_BYTES_MAX: usize = 16 << 20;

/// Bytes of attributes of one transaction between agents, which is one session whatever a peer puts
/// into it.
pub const TRANSACTION_ATTRIBUTE_BYTES_MAX: usize = 128 << 20;

/// Bytes of what a session did from which on it is written in several frames: far below a segment.
pub const COMMIT_PIECE_BYTES: u64 = 1 << 20;

/// Content bytes kept in memory so that a processor which keeps up never reads the disk.
pub const HOT_CONTENT_BYTES_MAX: u64 = 12 << 20;

/// Bytes queued for the journal's writer; below [`HOT_CONTENT_BYTES_MAX`], so that content is on
/// its file before it is dropped from memory. Each of the journal's two buffers grows to so much;
/// twice and more of it made no flow faster, and half of it those of large FlowFiles slower.
pub const JOURNAL_PENDING_BYTES_MAX: u64 = 6 << 20;

/// How long commits that nobody waits for rest before they are synced together: as many syncs leave
/// the disk and the processor to the flow, and a crash of the machine takes back no more than so
/// much work, which is done again.
pub const UNASKED_REST: Duration = Duration::from_millis(5);

/// Files of reclaimed segments kept for new ones: about as many as one tidying frees.
pub const SPARE_SEGMENTS_MAX: u32 = 6;

/// FlowFiles of one connection that stay in memory, where nothing else is said; NiFi's own.
pub const SWAP_THRESHOLD_DEFAULT: u64 = 20_000;

/// FlowFiles that are swapped out together, as NiFi does.
pub const SWAP_BATCH_FLOW_FILES: usize = 10_000;

/// Bytes of attributes that are swapped out together, so that a batch fits into one frame.
pub const SWAP_BATCH_BYTES: usize = 4 << 20;

/// Content bytes that the disk is told to read when swapped FlowFiles come back: some milliseconds'
/// worth, in the system's cache.
pub const READ_AHEAD_BYTES_MAX: u64 = 32 << 20;

/// Journal bytes between two snapshots at least; restart replays about as much.
pub const SNAPSHOT_BYTES_MIN: u64 = 64 << 20;

/// Journal bytes that old content may pin before it is moved forward.
pub const PINNED_BYTES_MAX: u64 = 512 << 20;

/// Bytes of the content journal that old content may pin before it is moved forward, and half of
/// what it grows between two tidyings.
pub const CONTENT_PINNED_BYTES_MAX: u64 = 512 << 20;

/// Bytes of one processor's state; positions and sequences, not data.
pub const PROCESSOR_STATE_BYTES_MAX: usize = 4 << 20;

/// Bulletins kept for the control plane; the oldest goes first.
pub const BULLETINS_MAX: usize = 200;

/// Bytes of one bulletin's message.
pub const BULLETIN_BYTES_MAX: usize = 2_000;

/// Bytes that a tail reads at once; large enough for one system call per thousands of lines.
pub const TAIL_BLOCK_BYTES: usize = 1 << 20;

/// Bytes that a tail of several files commits together.
pub const TAIL_SESSION_BYTES: usize = 4 << 20;

/// Bytes of one tailed line; a longer one is emitted in pieces of this size.
pub const TAIL_LINE_BYTES_MAX: usize = 4 << 20;

/// Bytes at a file's start that identify it beside its inode.
pub const TAIL_FINGERPRINT_BYTES: usize = 256;

/// Rolled files that a tail looks at when the file that it read is no longer the named one.
pub const TAIL_ROLLED_FILES_MAX: usize = 10_000;

/// A tail looks again after this long even when the kernel told it nothing (network folders).
pub const TAIL_RECHECK: Duration = Duration::from_secs(30);

/// Memory that a compressed stream may ask for before it is refused: xz needs 65 MB at its best.
pub const UNPACK_WINDOW_BYTES_MAX: usize = 128 << 20;

/// Files that one tail follows: each is looked at in each round.
pub const TAIL_FILES_MAX: usize = 5_000;

/// FlowFiles that wait in all bins of one MergeContent; the oldest bin is merged when there are
/// more.
pub const MERGE_KEPT_MAX: usize = 100_000;

/// Bytes of one message of the host's journal with all its fields; core dumps are no messages.
pub const JOURNAL_MESSAGE_BYTES_MAX: usize = 4 << 20;

/// Bytes that an archive tells of its files; a name is short.
pub const ARCHIVE_LIST_BYTES_MAX: u64 = 16 << 20;

/// Folders in folders that are read; deeper is a loop or a mistake.
pub const FOLDER_DEPTH_MAX: usize = 64;

/// Files that were taken and cannot be removed, kept in mind so that none is taken twice.
pub const LEFTOVERS_MAX: usize = 1_000;

/// Files told of in one commit of a listing.
pub const LISTING_FLOW_FILES_MAX: usize = 10_000;

/// Files that changed at the same instant which a listing keeps apart: its state stays small.
pub const LISTED_AT_ONCE_MAX: usize = 100_000;

/// Bytes of one answer of a Kafka broker; metadata of thousands of partitions fits.
pub const KAFKA_ANSWER_BYTES_MAX: usize = 16 << 20;

/// Topic partitions that one PublishKafka keeps sequences for.
pub const KAFKA_PARTITIONS_MAX: usize = 10_000;

/// Messages that one PublishMQTT has in flight; MQTT's packet ids end at 65,535.
pub const MQTT_IN_FLIGHT_MAX: u16 = 1_000;

/// Acknowledgements kept for the control plane while it is away; the oldest goes first.
pub const PENDING_ACKNOWLEDGEMENTS_MAX: usize = 100;

/// Stack of one processor's thread; run functions are shallow.
pub const PROCESSOR_STACK_BYTES: usize = 1 << 20;

/// Processors in one flow: each has a thread.
pub const PROCESSORS_MAX: usize = 1_000;

/// How long a stop waits for what is in flight before it is left in doubt and made up for later.
pub const STOP_WAIT: Duration = Duration::from_secs(5);

/// Longest pause between two tries to reach the control plane.
pub const CONTROL_BACK_OFF_MAX: Duration = Duration::from_secs(300);

/// Operations whose outcome is known after it was told, so that none is done twice.
pub const KNOWN_OPERATIONS_MAX: usize = 200;

/// Starts in a row that may fail with changed settings before these are taken back: one may be a
/// power cut.
pub const CHANGE_TRIES_MAX: u32 = 2;

/// How long changed settings may keep the control plane out of reach before they are taken back.
pub const CHANGE_TRIAL_WAIT: Duration = Duration::from_secs(300);

/// Extensions in one folder.
pub const EXTENSIONS_MAX: usize = 100;

/// Bytes of what an extension says of itself.
pub const EXTENSION_MANIFEST_BYTES_MAX: u64 = 1 << 20;

/// Processors of one extension.
pub const EXTENSION_PROCESSORS_MAX: usize = 100;

/// Bytes of one frame that an extension sends: attributes, or a piece of content.
pub const EXTENSION_FRAME_BYTES_MAX: u32 = 1 << 20;

/// Frames of an extension that wait to be taken; it is held back by its pipe then.
pub const EXTENSION_FRAMES_WAITING_MAX: usize = 16;

/// FlowFiles that an extension gives in one piece of work; they are made in one session.
pub const EXTENSION_OUTPUTS_MAX: usize = 100_000;

/// Files that an extension's process has open.
pub const EXTENSION_FILES_MAX: u64 = 256;

/// Bytes of one line of an extension's own words in the log.
pub const EXTENSION_LINE_BYTES_MAX: u64 = 8 << 10;

/// Bytes of an extension's WebAssembly module; compiled ones have some hundred KiB.
pub const EXTENSION_MODULE_BYTES_MAX: u64 = 64 << 20;

/// Stack of the thread that a module runs on; the interpreter has its own for the module.
pub const EXTENSION_MODULE_STACK_BYTES: usize = 1 << 20;

/// Buffers that a module reads or writes in one call.
pub const EXTENSION_VECTORS_MAX: usize = 1_024;

/// Bytes of one script's file: programs of people, not data.
pub const SCRIPT_BYTES_MAX: u64 = 4 << 20;

/// Memory that a script's Lua state may be bound to at the least; its libraries take a tenth of it.
pub const SCRIPT_MEMORY_BYTES_MIN: u64 = 1 << 20;

/// How long one trigger of a script may be allowed to take: more is no bound.
pub const SCRIPT_TIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// Instructions of a script between two looks at the clock: some hundred microseconds.
pub const SCRIPT_STEPS_BETWEEN_LOOKS: u32 = 10_000;

/// Bytes of attributes that one trigger of a script sets; they are not in its state's memory.
pub const SCRIPT_ATTRIBUTE_BYTES_MAX: usize = 64 << 20;

/// Streams that a script handles within each other: each has a piece of content in memory and its
/// share of the thread's stack.
pub const SCRIPT_STREAMS_DEPTH_MAX: usize = 8;

/// How long a stop waits for what processors are doing, MiNiFi C++'s own default.
pub const FLOW_STOP_WAIT_DEFAULT: Duration = Duration::from_secs(30);

/// Bytes of one asset: models and look-up tables, not data.
pub const ASSET_BYTES_MAX: u64 = 4 << 30;

/// Assets that the agent keeps account of.
pub const ASSETS_MAX: usize = 10_000;

/// Bytes of a debug bundle, packed; what EFM takes.
pub const BUNDLE_BYTES_MAX: usize = 16 << 20;

/// Bytes at the end of each log file that go into a debug bundle.
pub const BUNDLE_LOG_BYTES_MAX: u64 = 4 << 20;

/// Bytes of one question on the agent's own socket, or of the head of a request for metrics.
pub const QUESTION_BYTES_MAX: usize = 16 << 10;

/// Questions that the agent's own socket, and its metrics' port, answer at once; more wait.
pub const QUESTIONS_AT_ONCE_MAX: usize = 8;

/// How long one question may take to arrive, and its answer to leave.
pub const QUESTION_WAIT: Duration = Duration::from_secs(10);

/// Bytes of log lines kept in memory for a debug bundle: some hundred lines.
pub const RECENT_LOG_BYTES_MAX: usize = 128 << 10;

/// Bytes of one certificate or key file; a system's whole bundle has a few hundred KiB.
pub const TLS_FILE_BYTES_MAX: u64 = 4 << 20;

/// Threads on one processor, MiNiFi's bound; an edge device has few cores.
pub const TASKS_MAX: u32 = 255;

/// Provenance events that one answer has.
pub const PROVENANCE_EVENTS_SHOWN_MAX: usize = 10_000;

/// FlowFiles that one lineage follows; each is a look through the provenance repository.
pub const LINEAGE_FLOW_FILES_MAX: usize = 500;

/// How long one lineage is looked for: somebody waits for it at a terminal.
pub const LINEAGE_WAIT: Duration = Duration::from_secs(30);

/// Bytes of one file of settings; the longest shipped ones have a few hundred lines.
pub const CONFIGURATION_BYTES_MAX: usize = 1 << 20;

/// Bytes of provenance events in memory, where nothing else is said.
pub const VOLATILE_PROVENANCE_BYTES_DEFAULT: u64 = 10 << 20;

/// Tasks of all processors of a flow together: each has a thread.
pub const TASKS_TOTAL_MAX: u64 = 2_000;
