// Made by scripts/types.mjs from the OpenAPI document of the relayer. Do not edit.

export interface AccountResponse {
  "account": string;
  "bytes": QuotaView;
  "namespaces": QuotaView;
  "memories": QuotaView;
}

export interface ActiveRecallRequest {
  "namespace"?: string | null;
  "limit"?: number;
  "floor"?: number;
  "kinds"?: ("statement" | "fact" | "preference" | "decision" | "event" | "task" | "summary" | "profile" | "imported")[];
  "audiences"?: (string)[];
  "trusts"?: ("user" | "imported" | "assistant" | "tool")[];
  "include_suspect"?: boolean;
  "occurred_after"?: string | null;
  "occurred_before"?: string | null;
  "consistency"?: Consistency;
  "min_position"?: Position | null;
  "where"?: Record<string, unknown> | null;
  "query": string;
  "context"?: string;
  "style"?: "balanced" | "strict" | "contextual" | "recall-heavy" | "precision-heavy" | "preference-only";
  "max_chars"?: number;
  "prompt_append"?: string;
  "prompt_override"?: string;
  "thinking"?: "off" | "minimal" | "low" | "medium" | "high" | "xhigh" | "adaptive";
  "model"?: string;
  "model_fallback"?: "default-remote" | "resolved-only";
  "host_model"?: boolean;
  "answer"?: GivenAnswer | null;
}

export interface ActiveRecallResponse {
  "status": "ok" | "empty" | "fallback" | "ask";
  "summary"?: string;
  "memories"?: (RecallHit)[];
  "reason"?: "no_model" | "over_budget" | "model_unavailable" | "model_timeout" | "model_answer_unusable" | "not_proved" | null;
  "position"?: Position | null;
  "degraded"?: boolean;
  "considered"?: number;
  "question"?: ModelQuestion | null;
  "model"?: string;
  "model_missing"?: boolean;
}

export interface AnalyzeRequest {
  "turns": (TurnItem)[];
  "namespace"?: string | null;
  "idempotency_key"?: string | null;
  "audience"?: "agent" | "direct" | "group";
  "host"?: string;
  "session"?: string;
  "session_end"?: boolean;
  "store_transcript"?: boolean;
  "host_model"?: boolean;
  "wait_ms"?: number;
  "place"?: string;
  "tags"?: (string)[];
  "metadata"?: Record<string, unknown>;
}

export interface AnalyzeResponse {
  "state": "done" | "pending";
  "memories": (Remembered)[];
  "turns": number;
  "kept": number;
  "position"?: Position | null;
  "degraded"?: boolean;
  "job_id"?: string | null;
  "extraction"?: "local" | "pending" | "done" | "failed" | "over_budget";
  "facts"?: (string)[];
  "summary_job_id"?: string | null;
  "verdicts"?: (Verdict)[];
  "host_model"?: boolean;
}

export interface AskRequest {
  "namespace"?: string | null;
  "limit"?: number;
  "floor"?: number;
  "kinds"?: ("statement" | "fact" | "preference" | "decision" | "event" | "task" | "summary" | "profile" | "imported")[];
  "audiences"?: (string)[];
  "trusts"?: ("user" | "imported" | "assistant" | "tool")[];
  "include_suspect"?: boolean;
  "occurred_after"?: string | null;
  "occurred_before"?: string | null;
  "consistency"?: Consistency;
  "min_position"?: Position | null;
  "where"?: Record<string, unknown> | null;
  "question": string;
  "max_chars"?: number;
}

export interface AskResponse {
  "status": "answered" | "unknown";
  "answer"?: string;
  "citations"?: (RecallHit)[];
  "reason"?: "not_proved" | null;
  "position"?: Position | null;
  "degraded"?: boolean;
  "considered"?: number;
}

export interface ChangeView {
  "change": "remembered" | "superseded" | "forgotten" | "restored" | "erased";
  "id": string;
  "seq": number;
  "memory"?: Memory | null;
}

export interface ChangesResponse {
  "changes": (ChangeView)[];
  "next": string;
  "more": boolean;
  "position"?: Position | null;
}

export type Consistency = "strong" | "mine" | "any";

export interface ConsolidationRequest {
  "limit"?: number;
  "cursor"?: string | null;
  "namespace"?: string | null;
}

export interface ConsolidationResponse {
  "proposals": (ProposalView)[];
  "examined": number;
  "expired": number;
  "next_cursor"?: string | null;
  "position"?: Position | null;
  "replaced"?: (ReplacedView)[];
}

export interface ContextDay {
  "date": string;
  "memories": (Memory)[];
  "total": number;
}

export interface ContextResponse {
  "days": (ContextDay)[];
  "total": number;
  "position"?: Position | null;
  "coming"?: (Memory)[];
}

export interface DeleteRequest {
  "ids"?: (string)[];
  "kinds"?: ("statement" | "fact" | "preference" | "decision" | "event" | "task" | "summary" | "profile" | "imported")[];
  "audiences"?: (string)[];
  "trusts"?: ("user" | "imported" | "assistant" | "tool")[];
  "hosts"?: (string)[];
  "sessions"?: (string)[];
  "speakers"?: (string)[];
  "suspect"?: boolean | null;
  "pinned"?: boolean | null;
  "created_after"?: string | null;
  "created_before"?: string | null;
  "occurred_after"?: string | null;
  "occurred_before"?: string | null;
  "inactive_since"?: string | null;
  "where"?: Record<string, unknown> | null;
  "mode"?: "forget" | "erase";
  "everything"?: boolean;
  "dry_run"?: boolean;
  "namespace"?: string | null;
}

export interface DeleteResponse {
  "matched": number;
  "forgotten": number;
  "remaining": number;
  "dry_run": boolean;
  "ids"?: (string)[];
  "position"?: Position | null;
  "erased"?: number;
  "erasure"?: ErasureView | null;
}

export interface EraseNamespaceRequest {
  "namespace"?: string | null;
  "dry_run"?: boolean;
  "confirm"?: string | null;
}

export interface EraseNamespaceResponse {
  "namespace": string;
  "dry_run": boolean;
  "memories"?: number | null;
  "bytes"?: number | null;
  "confirm": string;
  "erasure"?: ErasureView | null;
}

export interface ErasureView {
  "id": string;
  "what": "memory" | "namespace" | "former";
  "namespace": string;
  "state": "erased" | "destroyed" | "confirmed";
  "memories"?: (string)[];
  "derived"?: (string)[];
  "entries"?: number;
  "objects"?: number;
  "asked_at": string;
  "destroyed_at"?: string | null;
  "confirmed_at"?: string | null;
}

export interface Evidence {
  "cosine"?: number | null;
  "bm25"?: number | null;
  "covered"?: number;
  "speaker"?: boolean;
  "score"?: number;
  "penalty"?: number;
}

export interface ExportLine {
  "memory": Memory;
}

export interface ExportRequest {
  "ids"?: (string)[];
  "kinds"?: ("statement" | "fact" | "preference" | "decision" | "event" | "task" | "summary" | "profile" | "imported")[];
  "audiences"?: (string)[];
  "trusts"?: ("user" | "imported" | "assistant" | "tool")[];
  "hosts"?: (string)[];
  "sessions"?: (string)[];
  "speakers"?: (string)[];
  "suspect"?: boolean | null;
  "pinned"?: boolean | null;
  "created_after"?: string | null;
  "created_before"?: string | null;
  "occurred_after"?: string | null;
  "occurred_before"?: string | null;
  "inactive_since"?: string | null;
  "where"?: Record<string, unknown> | null;
  "transcripts"?: boolean;
  "states"?: ("live" | "superseded" | "forgotten")[];
  "namespace"?: string | null;
}

export interface FleetKeyView {
  "day": string;
  "public_key": string;
  "not_after": number;
}

export interface ForgetResponse {
  "id": string;
  "state": "forgotten" | "erased";
  "position": Position;
  "erasure"?: ErasureView | null;
}

export interface GivenAnswer {
  "ticket": string;
  "text": string;
  "model"?: string;
  "tokens"?: number;
}

export interface HealthResponse {
  "status": "ok";
  "version": string;
}

export interface ImportItem {
  "text": string;
  "kind"?: "statement" | "fact" | "preference" | "decision" | "event" | "task" | "summary" | "profile" | "imported";
  "audience"?: "agent" | "direct" | "group";
  "trust"?: "user" | "imported" | "assistant" | "tool";
  "suspect"?: boolean;
  "pinned"?: boolean;
  "importance"?: number;
  "lang"?: string;
  "occurred_at"?: string | null;
  "valid_from"?: string | null;
  "valid_to"?: string | null;
  "context_of"?: string | null;
  "source"?: SourceInfo;
  "tags"?: (string)[];
  "metadata"?: Record<string, unknown>;
  "id"?: string | null;
  "created_at"?: string | null;
  "expires_at"?: string | null;
  "state"?: "live" | "superseded" | "forgotten";
  "unmentioned"?: (string)[];
}

export interface ImportRequest {
  "memories": (ImportItem)[];
  "namespace"?: string | null;
  "idempotency_key"?: string | null;
  "as_backup"?: boolean;
  "keep_secrets"?: boolean;
}

export interface ImportResponse {
  "memories": (Imported)[];
  "position"?: Position | null;
  "degraded"?: boolean;
  "job_id"?: string | null;
}

export interface Imported {
  "id"?: string | null;
  "status": "stored" | "duplicate" | "refused" | "skipped";
  "code"?: string | null;
}

export interface JobResponse {
  "id": string;
  "work": string;
  "state": "queued" | "running" | "waiting" | "done" | "failed";
  "accepted_at": string;
  "finished_at"?: string | null;
  "memories"?: (string)[];
  "reason"?: string | null;
  "attempts"?: number;
  "retry_in_ms"?: number | null;
}

export interface Judgement {
  "best"?: number | null;
  "usual"?: number;
  "needed"?: number;
  "doubt"?: number;
}

export interface KeysResponse {
  "identity": string;
  "issued_at": number;
  "keys": (FleetKeyView)[];
  "signature": string;
}

export interface ListRequest {
  "limit"?: number;
  "cursor"?: string | null;
  "kinds"?: ("statement" | "fact" | "preference" | "decision" | "event" | "task" | "summary" | "profile" | "imported")[];
  "states"?: ("live" | "superseded" | "forgotten")[];
  "audiences"?: (string)[];
  "where"?: Record<string, unknown> | null;
  "namespace"?: string | null;
}

export interface ListResponse {
  "memories": (Memory)[];
  "next_cursor"?: string | null;
  "total": number;
}

export interface Memory {
  "id": string;
  "text": string;
  "kind": "statement" | "fact" | "preference" | "decision" | "event" | "task" | "summary" | "profile" | "imported";
  "audience": "agent" | "direct" | "group";
  "trust": "user" | "imported" | "assistant" | "tool";
  "suspect"?: boolean;
  "pinned"?: boolean;
  "importance"?: number;
  "lang"?: string;
  "created_at": string;
  "occurred_at"?: string | null;
  "valid_from"?: string | null;
  "valid_to"?: string | null;
  "expires_at"?: string | null;
  "state"?: "live" | "superseded" | "forgotten";
  "supersedes"?: (string)[];
  "superseded_by"?: string | null;
  "reinforced"?: number;
  "context_of"?: string | null;
  "contradicts"?: (string)[];
  "follows"?: (string)[];
  "replaced"?: (ReplacedStatement)[];
  "searchable"?: boolean;
  "source"?: SourceInfo;
  "extractor"?: string;
  "embedding"?: string;
  "tags"?: (string)[];
  "metadata"?: Record<string, unknown>;
  "unmentioned"?: (string)[];
}

export interface MemoryItem {
  "text": string;
  "kind"?: "statement" | "fact" | "preference" | "decision" | "event" | "task" | "summary" | "profile" | "imported";
  "audience"?: "agent" | "direct" | "group";
  "trust"?: "user" | "imported" | "assistant" | "tool";
  "suspect"?: boolean;
  "pinned"?: boolean;
  "importance"?: number;
  "lang"?: string;
  "occurred_at"?: string | null;
  "valid_from"?: string | null;
  "valid_to"?: string | null;
  "context_of"?: string | null;
  "source"?: SourceInfo;
  "tags"?: (string)[];
  "metadata"?: Record<string, unknown>;
  "vector"?: string | null;
  "ttl_seconds"?: number | null;
}

export interface MemoryResponse {
  "memory": Memory;
  "history"?: (Memory)[];
  "omitted"?: number;
}

export interface ModelQuestion {
  "ticket": string;
  "messages": (QuestionMessage)[];
  "shape"?: Record<string, unknown> | null;
  "max_tokens": number;
  "effort"?: string;
}

export interface ModelWorkRequest {
  "namespace"?: string | null;
  "turn_summaries"?: boolean;
  "job_id"?: string | null;
  "answer"?: GivenAnswer | null;
}

export interface ModelWorkResponse {
  "outcome"?: "done" | "failed" | "unusable" | "stale" | null;
  "facts"?: number;
  "dropped"?: number;
  "job_id"?: string | null;
  "work"?: string;
  "question"?: ModelQuestion | null;
  "waiting"?: number;
  "retry_in_ms"?: number | null;
}

export interface NamespaceView {
  "name": string;
  "custody": "agent" | "relayer";
  "generation": number;
  "next_generation"?: number | null;
  "state": "live" | "erasing" | "erased";
  "created_at": string;
  "memories"?: number | null;
  "bytes"?: number | null;
  "last_used_at"?: string | null;
}

export interface NamespacesResponse {
  "namespaces": (NamespaceView)[];
  "next_cursor"?: string | null;
}

export interface Position {
  "seq": number;
  "digest": string;
}

export interface Problem {
  "type": string;
  "title": string;
  "status": number;
  "code": string;
  "detail": string;
  "request_id": string;
  "errors"?: (ProblemField)[];
  "retry_after"?: number | null;
  "generation"?: number | null;
  "server_time"?: number | null;
  "accepted"?: (string)[] | null;
}

export interface ProblemField {
  "field": string;
  "rule": string;
  "length"?: number | null;
}

export interface ProfileLine {
  "id": string;
  "text": string;
  "speaker"?: string;
  "kind": "statement" | "fact" | "preference" | "decision" | "event" | "task" | "summary" | "profile" | "imported";
  "audience": "agent" | "direct" | "group";
  "trust": "user" | "imported" | "assistant" | "tool";
  "pinned"?: boolean;
  "place"?: string;
  "sender"?: string;
}

export interface ProfileResponse {
  "document": string;
  "sections": (ProfileSection)[];
  "shown": number;
  "total": number;
  "position"?: Position | null;
}

export interface ProfileSection {
  "name": "user" | "preferences" | "decisions" | "tasks" | "events" | "notes";
  "lines": (ProfileLine)[];
}

export interface ProposalView {
  "id": string;
  "reason": "duplicate" | "replaced" | "conflict";
  "stays": Memory;
  "goes": Memory;
}

export interface QuestionMessage {
  "role": "system" | "user";
  "text": string;
}

export interface QuotaView {
  "used": number;
  "limit"?: number | null;
}

export interface ReadyResponse {
  "ready": boolean;
  "checks": Record<string, string>;
  "degraded"?: boolean;
}

export interface RecallHit extends Memory {
  "relevance": number;
  "distance": number;
  "evidence"?: Evidence | null;
  "passage"?: string;
  "before"?: string;
}

export interface RecallRequest {
  "namespace"?: string | null;
  "limit"?: number;
  "floor"?: number;
  "kinds"?: ("statement" | "fact" | "preference" | "decision" | "event" | "task" | "summary" | "profile" | "imported")[];
  "audiences"?: (string)[];
  "trusts"?: ("user" | "imported" | "assistant" | "tool")[];
  "include_suspect"?: boolean;
  "occurred_after"?: string | null;
  "occurred_before"?: string | null;
  "consistency"?: Consistency;
  "min_position"?: Position | null;
  "where"?: Record<string, unknown> | null;
  "query"?: string | null;
  "vector"?: string | null;
  "max_tokens"?: number | null;
  "explain"?: boolean;
  "penalties"?: (SourcePenalty)[] | null;
  "diversity"?: number;
  "half_life_days"?: number | null;
  "include"?: ("superseded" | "forgotten")[];
  "as_of"?: string | null;
  "standing"?: (string)[];
  "named"?: (string)[];
  "prompt"?: boolean;
  "unasked"?: boolean;
  "former"?: boolean;
  "rerank"?: boolean;
}

export interface RecallResponse {
  "memories": (RecallHit)[];
  "position"?: Position | null;
  "degraded"?: boolean;
  "considered"?: number;
  "judgement"?: Judgement | null;
  "gone"?: (string)[];
  "left_out"?: number;
  "unmentioned"?: (Unmentioned)[];
  "former"?: boolean;
}

export interface RememberRequest {
  "items": (MemoryItem)[];
  "namespace"?: string | null;
  "idempotency_key"?: string | null;
  "keep_secrets"?: boolean;
}

export interface RememberResponse {
  "memories": (Remembered)[];
  "position": Position;
  "degraded"?: boolean;
  "job_id"?: string | null;
}

export interface Remembered {
  "id": string;
  "status": "stored" | "duplicate" | "refused";
  "code"?: string | null;
}

export interface ReplacedStatement {
  "text": string;
  "by": string;
  "followed"?: boolean;
}

export interface ReplacedView {
  "memory": string;
  "statement": string;
  "by": string;
  "text": string;
  "at": string;
}

export interface RestoreResponse {
  "id": string;
  "state": "live";
  "replaced"?: string | null;
  "position": Position;
}

export interface RevocationsRequest {
  "revocations": string;
}

export interface RevocationsResponse {
  "counter": number;
}

export interface RevocationsView {
  "revocations"?: string;
}

export interface RotateKeysRequest {
  "namespace"?: string | null;
  "memory_key": string;
}

export interface RotateKeysResponse {
  "namespace": string;
  "generation": number;
  "entries"?: number | null;
  "records"?: number | null;
  "erasure"?: ErasureView | null;
}

export interface SourceInfo {
  "host"?: string;
  "session"?: string;
  "speaker"?: string;
  "role"?: "user" | "assistant" | "tool" | "system";
  "message_ids"?: (string)[];
  "transcript"?: string;
  "reference"?: string;
  "place"?: string;
  "sender"?: string;
}

export interface SourcePenalty {
  "match": string;
  "penalty"?: number;
}

export interface StandingLine extends ProfileLine {
  "about": "harm" | "style" | "identity";
}

export interface StandingResponse {
  "lines": (StandingLine)[];
  "complete"?: boolean;
  "position"?: Position | null;
}

export interface SupersedeRequest {
  "text"?: string | null;
  "vector"?: string | null;
  "kind"?: "statement" | "fact" | "preference" | "decision" | "event" | "task" | "summary" | "profile" | "imported" | null;
  "audience"?: "agent" | "direct" | "group" | null;
  "trust"?: "user" | "imported" | "assistant" | "tool" | null;
  "suspect"?: boolean | null;
  "pinned"?: boolean | null;
  "importance"?: number | null;
  "lang"?: string | null;
  "occurred_at"?: string | null;
  "valid_from"?: string | null;
  "valid_to"?: string | null;
  "ttl_seconds"?: number | null;
  "contradicts"?: (string)[] | null;
  "namespace"?: string | null;
  "idempotency_key"?: string | null;
  "place"?: string | null;
  "sender"?: string | null;
  "tags"?: (string)[] | null;
  "metadata"?: Record<string, unknown> | null;
}

export interface SupersedeResponse {
  "id": string;
  "supersedes": string;
  "position": Position;
  "degraded"?: boolean;
  "job_id"?: string | null;
}

export interface TakeRequest {
  "proposals": (string)[];
  "namespace"?: string | null;
}

export interface TakeResponse {
  "proposals": (TakenView)[];
  "position"?: Position | null;
}

export interface TakenView {
  "id": string;
  "status": "taken" | "stale" | "refused";
  "version"?: string | null;
}

export interface TranscriptLine {
  "role": "user" | "assistant";
  "text": string;
  "occurred_at"?: string | null;
  "id"?: string;
  "call"?: boolean;
}

export interface TranscriptRequest {
  "session": string;
  "namespace"?: string | null;
  "anchor"?: string | null;
  "at"?: string | null;
  "limit"?: number;
  "audiences"?: (string)[];
}

export interface TranscriptResponse {
  "lines": (TranscriptLine)[];
  "total": number;
  "position"?: Position | null;
}

export interface TurnItem {
  "role": "user" | "assistant" | "tool" | "system";
  "text": string;
  "occurred_at"?: string | null;
  "id"?: string | null;
  "speaker"?: string | null;
  "suspect"?: boolean;
  "calls"?: (string)[];
  "noted"?: boolean;
  "whole"?: boolean;
  "sender"?: string;
}

export interface Unmentioned {
  "id": string;
  "by": string;
  "relevance"?: number;
}

export interface Verdict {
  "turn": number;
  "kept": boolean;
  "reason": string;
  "start"?: number;
  "end"?: number;
}

export interface VersionResponse {
  "version": string;
  "api_version": string;
  "min_client_version": string;
  "model": string;
  "dimension": number;
  "extractor": string;
}
