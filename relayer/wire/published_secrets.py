"""Forms of keys and tokens that their issuers publish, so that scanners can find them: the prefix alone decides."""

from __future__ import annotations

from typing import Final

__all__ = ["PUBLISHED"]

PUBLISHED: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("anthropic_key", r"sk-ant-[A-Za-z0-9_-]{20,200}", ("sk-ant-",)),
    ("openrouter_key", r"sk-or-v1-[0-9a-f]{32,64}", ("sk-or-v1-",)),
    (
        "openai_key",
        r"sk-(?:proj-|svcacct-|admin-|None-)[A-Za-z0-9_-]{20,200}|sk-[A-Za-z0-9]{32,64}",
        ("sk-",),
    ),
    (
        "google_key",
        r"AIza[A-Za-z0-9_-]{35}|GOCSPX-[A-Za-z0-9_-]{24,40}|ya29\.[A-Za-z0-9_-]{20,400}",
        ("aiza", "gocspx-", "ya29."),
    ),
    ("aws_key", r"(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}", ("akia", "asia", "abia", "acca")),
    ("github_token", r"gh[pousr]_[A-Za-z0-9]{36,255}|github_pat_[A-Za-z0-9_]{22,255}", ("gh", "github_pat_")),
    ("gitlab_token", r"gl(?:pat|rt|ptt|dt|cbt|soat|ft)-[A-Za-z0-9_-]{20,64}", ("gl",)),
    ("slack_token", r"xox[abeoprs]-[A-Za-z0-9-]{10,250}|xapp-\d-[A-Za-z0-9-]{10,250}", ("xox", "xapp-")),
    (
        "slack_webhook",
        r"https://hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9/_-]{20,200}",
        ("hooks.slack.com",),
    ),
    (
        "discord_webhook",
        r"https://(?:\w{1,20}\.)?discord(?:app)?\.com/api/webhooks/\d{10,25}/[A-Za-z0-9_-]{30,100}",
        ("/api/webhooks/",),
    ),
    ("discord_token", r"[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,45}", (".",)),
    (
        "stripe_key",
        r"(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,247}|whsec_[A-Za-z0-9+/=]{24,100}",
        ("_live_", "_test_", "whsec_"),
    ),
    ("huggingface_token", r"hf_[A-Za-z]{30,40}", ("hf_",)),
    ("npm_token", r"npm_[A-Za-z0-9]{36}", ("npm_",)),
    ("pypi_token", r"pypi-AgE[A-Za-z0-9_-]{50,400}", ("pypi-age",)),
    ("sendgrid_key", r"SG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{32,64}", ("sg.",)),
    ("twilio_key", r"(?:SK|AC)[0-9a-fA-F]{32}", ("sk", "ac")),
    ("telegram_token", r"\d{8,10}:AA[A-Za-z0-9_-]{32,35}", (":aa",)),
    ("digitalocean_token", r"do[opr]_v1_[0-9a-f]{64}", ("_v1_",)),
    ("shopify_token", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}", ("shp",)),
    ("databricks_token", r"dapi[0-9a-f]{32}(?:-\d)?", ("dapi",)),
    ("groq_key", r"gsk_[A-Za-z0-9]{40,60}", ("gsk_",)),
    ("xai_key", r"xai-[A-Za-z0-9]{60,100}", ("xai-",)),
    ("perplexity_key", r"pplx-[A-Za-z0-9]{40,60}", ("pplx-",)),
    ("replicate_token", r"r8_[A-Za-z0-9]{30,45}", ("r8_",)),
    ("linear_key", r"lin_(?:api|oauth)_[A-Za-z0-9]{30,64}", ("lin_",)),
    ("notion_token", r"(?:ntn_|secret_)[A-Za-z0-9]{40,60}", ("ntn_", "secret_")),
    ("vault_token", r"hv[sbr]\.[A-Za-z0-9_-]{24,200}", ("hvs.", "hvb.", "hvr.")),
    ("figma_token", r"fig[dou]_[A-Za-z0-9_-]{35,60}", ("figd_", "figo_", "figu_")),
    ("age_key", r"AGE-SECRET-KEY-1[A-Z0-9]{50,62}", ("age-secret-key-1",)),
    ("jwt", r"eyJ[A-Za-z0-9_-]{8,2000}\.eyJ[A-Za-z0-9_-]{8,8000}\.[A-Za-z0-9_-]{16,2000}", ("eyj",)),
)
"""Class, form as a regular expression without its edges, and what no text that holds one is without, in lower case."""
