export * from "./errors.js";
export * from "./memory.js";
export { FileTrustStore, MemoryTrustStore, PageTrustStore, type TrustStore } from "./trust.js";
export type * as api from "./api.js";
