/** Canonical encodings: length-prefixed fields and base64url. See "Encodings" in docs/format.md. */

export type Bytes = Uint8Array<ArrayBuffer>;
export type Field = Uint8Array | string | number | readonly Field[];

/** A value is not in the form that the protocol defines. */
export class Malformed extends Error {}

const encoder = new TextEncoder();

export function concat(...parts: Uint8Array[]): Bytes {
  const joined = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    joined.set(part, at);
    at += part.length;
  }
  return joined;
}

/** Encode text as UTF-8, and refuse lone surrogates, which `TextEncoder` would replace silently. */
export function utf8(text: string): Bytes {
  if (/\p{Surrogate}/u.test(text)) throw new Malformed("a string contains a lone surrogate");
  return encoder.encode(text) as Bytes;
}

export function u64(value: number): Bytes {
  if (!Number.isSafeInteger(value) || value < 0) throw new Malformed("an integer is negative or too large");
  const bytes = new Uint8Array(8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(value));
  return bytes;
}

/** Encode fields, each as its length in eight big-endian bytes and its content. */
export function lp(...fields: readonly Field[]): Bytes {
  return concat(
    ...fields.flatMap((field) => {
      const content =
        field instanceof Uint8Array ? field
        : typeof field === "string" ? utf8(field.normalize("NFC"))
        : typeof field === "number" ? u64(field)
        : lp(...field);
      return [u64(content.length), content];
    }),
  );
}

export function base64(bytes: Uint8Array): string {
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary);
}

/** Encode as base64url without padding. */
export function base64url(bytes: Uint8Array): string {
  return base64(bytes).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** Decode base64url without padding, whose unused bits are zero. */
export function fromBase64url(text: string): Bytes {
  if (!/^[A-Za-z0-9_-]*$/.test(text) || text.length % 4 === 1) throw new Malformed("not base64url");
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  const bytes = Uint8Array.from(binary, (char) => char.charCodeAt(0));
  if (base64url(bytes) !== text) throw new Malformed("not base64url");
  return bytes;
}

export function hex(bytes: Uint8Array): string {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function fromHex(text: string): Bytes {
  if (!/^([0-9a-fA-F]{2})*$/.test(text)) throw new Malformed("not hexadecimal");
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

/** Compare without revealing by the time taken where two values differ. */
export function equal(a: Uint8Array, b: Uint8Array): boolean {
  if (a.length !== b.length) return false;
  return a.reduce((different, byte, at) => different | (byte ^ b[at]!), 0) === 0;
}
