"""The certificate of the API's domain: an existing one of ACM, one of AWS Private CA, or a public one."""

from aws_cdk import aws_acmpca as acmpca
from aws_cdk import aws_certificatemanager as acm
from constructs import Construct

from infra.settings import Settings


def server_certificate(scope: Construct, settings: Settings) -> acm.ICertificate:
    """Return the certificate that the settings name, or a new one; a public one waits for its DNS record."""
    if settings.certificate_arn:
        return acm.Certificate.from_certificate_arn(scope, "Certificate", settings.certificate_arn)
    if settings.certificate_authority_arn:
        authority = acmpca.CertificateAuthority.from_certificate_authority_arn(
            scope, "CertificateAuthority", settings.certificate_authority_arn
        )
        return acm.PrivateCertificate(
            scope, "Certificate", domain_name=settings.domain_name, certificate_authority=authority
        )
    return acm.Certificate(
        scope, "Certificate", domain_name=settings.domain_name, validation=acm.CertificateValidation.from_dns()
    )
