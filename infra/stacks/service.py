"""Everything without data: functions, queue, state machine, Spark application, API, schedule and alarms."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, Final

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_emrserverless as emr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.constructs.api import EdgeApi
from infra.constructs.code import Code, stored_object
from infra.constructs.functions import (
    DeployedFunction,
    FunctionNetwork,
    FunctionParts,
    GradualDeployments,
    SecretRotationSchedule,
    run_every_minute,
)
from infra.constructs.logs import LogKeeping
from infra.constructs.monitoring import Dashboards, MetricOf, Monitoring, build_alarm, failures
from infra.constructs.network.domains import BASE_PATH
from infra.constructs.queues import SqsQueues, dispatch_queue, event_bus_arn, notification_queues
from infra.constructs.security.nag import acknowledge_below
from infra.constructs.security.permissions import Grants
from infra.constructs.spark import SparkApplication
from infra.constructs.workflow import Workflow, state_machine_arn
from infra.environment.functions import PROBE, deployed_functions
from infra.environment.resources import MOVABLE, VARIABLES, Resources, service_name, stored_settings
from infra.network_settings import CustomerKeyUse, GradualDeployment
from infra.operations.alarms import RESOURCES_ALARMS, SECRET_ROTATION, USERS_ALARMS, AlarmRule, AwsSource, lease_age
from infra.operations.boards import BoardNames
from infra.settings import Settings
from infra.stacks.data import DataStack
from infra.stacks.network import NetworkStack, functions_in_vpc, quarantine_roles

_NEXT_SWEEP: Final = "A failed run is not kept: the next run, a minute later, does the work, and alarms watch both."
_NEXT_PROBE: Final = "The next run is a minute later. The alarm ProbeFailed reports missing runs."


class ServiceStack(Stack):
    """Wires the constructs; `resources` has the values of the functions' variables, `grants` what roles may use."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: Settings,
        data: DataStack,
        keeping: LogKeeping,
        network: NetworkStack | None = None,
    ) -> None:
        super().__init__(scope, construct_id, description="Polaris Delegation Service: API, workflow, engines")
        code = Code(
            self,
            "Code",
            package=settings.package,
            processor=settings.architecture,
            behaviors=settings.behaviors,
        )
        # What is known only at deployment has no place in a stored object.
        movable = {name: getattr(settings, name) for name, variable in VARIABLES.items() if variable in MOVABLE}
        stored = stored_object(self, stored_settings(Resources(**movable)))
        queue_key = data.key if settings.has_customer_key_for(CustomerKeyUse.QUEUES) else None
        self.dispatch = dispatch_queue(self, key=queue_key)
        self.spark = SparkApplication(
            self,
            "Spark",
            settings=settings,
            code=code,
            data=data.grants,
            keeping=keeping,
            stored=stored,
            network=_network_of_jobs(settings, network),
        )
        machine_arn = state_machine_arn(self, settings.stage)
        self.notifications = notification_queues(self, key=queue_key) if settings.notifies else None
        queues = self.notifications.queues if self.notifications else {}
        self.resources = _resources(settings, data, self.dispatch, self.spark, machine_arn).replaced(
            notification_queue_url=queues["Queue"].queue_url if queues else None,
            event_queue_url=queues["Events"].queue_url if queues else None,
            apart_queue_url=queues["Apart"].queue_url if queues else None,
            settings_object=stored.s3_object_url,
            **_front_of(network),
        )
        self.grants = Grants(
            data.grants,
            self.spark,
            self.dispatch.queue.queue_arn,
            machine_arn,
            revocation_list_arns(self, settings, data.buckets.truststore),
            tuple(queue.queue_arn for queue in queues.values()),
            event_bus_arn(self, settings.event_bus) if settings.has_events else None,
            queue_key,
            (settings.probe_secret_arn,) if settings.probe_secret_arn else (),
            quarantine_roles(settings),
        )
        parts = self.parts = FunctionParts(
            code=code.functions,
            processor=settings.architecture,
            resources=self.resources,
            grants=self.grants,
            keeping=keeping,
            stored=stored,
            bootstrap_key_arn=settings.bootstrap_key_arn,
        )
        scope, inside = Construct(self, "Functions"), functions_in_vpc(settings)
        functions = self.functions = {
            name: DeployedFunction(
                scope,
                "".join(part.title() for part in name.split("_")),
                function,
                parts,
                network=_inside(network) if name in inside else None,
                concurrency=settings.concurrency.get(name, function.reserved_concurrency),
            ).function
            for name, function in deployed_functions(settings.properties).items()
        }
        self.rotation: SecretRotationSchedule | None = None
        if settings.polaris_secret_rotation_days is not None:
            self.rotation = SecretRotationSchedule(
                self, "SecretRotation", parts, network=_inside(network), days=settings.polaris_secret_rotation_days
            )
        self._acknowledge_unknown_ids(data.grants.plan_bucket_arn)
        self.workflow = Workflow(self, "Workflow", stage=settings.stage, functions=functions, keeping=keeping)
        self.dispatch.feed(functions["dispatcher"])
        if self.notifications is not None:
            self.notifications.feed(functions["notifier"])
        run_every_minute(Construct(self, "Sweep"), functions["sweeper"], next_run=_NEXT_SWEEP)
        gradual = None
        if settings.gradual_deployment is not GradualDeployment.OFF:
            gradual = GradualDeployments(self, "Gradual", functions=functions)
        called: Mapping[str, lambda_.IFunction] = functions if gradual is None else gradual.aliases
        self.api = EdgeApi(
            self,
            "Api",
            settings=settings,
            function=called["api"],
            authorizer=called["authorizer"],
            buckets=data.buckets,
            keeping=keeping,
            network=network.front if network else None,
        )
        if settings.probe_secret_arn is not None:
            self._build_probe(parts, network)
        # Always exported: what a gateway imported cannot be removed together with it.
        self.export_value(self.dispatch.queue.queue_arn)
        self.export_value(self.dispatch.queue.queue_url)
        if settings.alarm_topic_arn is None:
            topic = self._build_alarm_topic(settings, data)
            self.export_value(topic.topic_arn)
            self.alarm_topic_arn: str = topic.topic_arn
        else:
            self.alarm_topic_arn = settings.alarm_topic_arn
        sources = self._metric_sources()
        self.monitoring = Monitoring(
            self, "Monitoring", settings=settings, topic_arn=self.alarm_topic_arn, sources=sources
        )
        alarms = dict(self.monitoring.alarms)
        if self.rotation is not None:
            alarms[SECRET_ROTATION.name] = build_alarm(
                self.rotation, SECRET_ROTATION, settings, self.alarm_topic_arn, sources
            )
        if gradual is not None:
            gradual.watch(settings.gradual_deployment, self.monitoring.alarms)
        self.dashboards = Dashboards(
            self,
            "Dashboards",
            stage=settings.stage,
            names=self._board_names(settings, data, alarms),
            log_groups=[*(function.log_group for function in functions.values()), self.workflow.log, self.spark.log],
        )

    def _build_probe(self, parts: FunctionParts, network: NetworkStack | None) -> None:
        """Probe the load balancer from inside the VPC, the regional domain from outside."""
        inside = None
        if network is not None and network.groups.probe is not None:
            groups = (network.groups.workers.security_group_id, network.groups.probe.security_group_id)
            inside = FunctionNetwork(network.vpc.subnet_ids, groups)
        own = replace(parts, resources=self.resources.replaced(probe_address=self.api.front.address))
        probe = Construct(self, "Probe")
        function = DeployedFunction(probe, "Ask", PROBE, own, network=inside).function
        run_every_minute(probe, function, next_run=_NEXT_PROBE)

    def _metric_sources(self) -> dict[AwsSource, MetricOf]:
        """Return how the metrics are made that AWS measures of this stack's resources."""
        sweeper = self.functions["sweeper"]
        sources = {
            AwsSource.DISPATCH_DEAD_LETTERS: self.dispatch.dead_letters.metric_approximate_number_of_messages_visible,
            AwsSource.DISPATCH_QUEUE_AGE: self.dispatch.queue.metric_approximate_age_of_oldest_message,
            AwsSource.EXECUTIONS_FAILED: partial(failures, self.workflow.machine),
            AwsSource.SWEEPER_ERRORS: sweeper.metric_errors,
            AwsSource.SWEEPER_INVOCATIONS: sweeper.metric_invocations,
            AwsSource.API_SERVER_ERRORS: self.api.rest_api.metric_server_error,
        }
        if self.api.front.names is not None:
            sources |= self.api.front.names.sources()
        if self.notifications is not None:
            dead = self.notifications.dead_letters
            sources[AwsSource.NOTIFICATION_DEAD_LETTERS] = dead.metric_approximate_number_of_messages_visible
        if self.rotation is not None:
            sources[AwsSource.ROTATION_ERRORS] = self.rotation.function.metric_errors
        return sources

    def _board_names(self, settings: Settings, data: DataStack, alarms: Mapping[str, cloudwatch.Alarm]) -> BoardNames:
        def arns(rules: Sequence[AlarmRule]) -> list[str]:
            return [alarms[rule.name].alarm_arn for rule in rules if rule.name in alarms]

        tables = data.tables
        return BoardNames(
            region=self.region,
            service=service_name(settings.stage),
            api=self.api.rest_api.rest_api_name,
            api_stage=self.api.rest_api.deployment_stage.stage_name,
            queue=self.dispatch.queue.queue_name,
            dead_letters=self.dispatch.dead_letters.queue_name,
            machine_arn=self.workflow.machine.state_machine_arn,
            application_id=self.spark.application_id,
            lease_hours=lease_age(timedelta(minutes=settings.emr_queue_minutes)).threshold / 3600,
            balancer=self.api.front.names.balancer if self.api.front.names else None,
            targets=self.api.front.names.targets if self.api.front.names else None,
            probes=settings.probe_secret_arn is not None,
            functions={name: function.function_name for name, function in self.functions.items()},
            tables={
                "tasks": tables.tasks.table_name,
                "idempotency": tables.idempotency.table_name,
                "references": tables.references.table_name,
            },
            users_alarms=arns(USERS_ALARMS),
            resources_alarms=arns(RESOURCES_ALARMS),
        )

    def _build_alarm_topic(self, settings: Settings, data: DataStack) -> sns.Topic:
        key = data.key if settings.has_customer_key_for(CustomerKeyUse.TOPICS) else None
        topic = sns.Topic(self, "AlarmTopic", master_key=key, enforce_ssl=True)
        # A policy of its own replaces the default one, by which alarms of the account could publish.
        topic.add_to_resource_policy(
            iam.PolicyStatement(
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": self.account}},
            )
        )
        CfnOutput(self, "AlarmTopicArn", value=topic.topic_arn)
        return topic

    def _acknowledge_unknown_ids(self, plan_bucket_arn: str) -> None:
        bucket = "The service's own bucket; keys begin with a task id, which is unknown at deployment."
        runs = "Job runs of this application only; their ids are unknown at deployment."
        acknowledge_below(self, plan_bucket_arn, "/*", bucket)
        for arn in self.spark.every_application_arn:
            acknowledge_below(self, arn, "/jobruns/*", runs)


def _network_of_jobs(
    settings: Settings, network: NetworkStack | None
) -> emr.CfnApplication.NetworkConfigurationProperty | None:
    """Return where Spark jobs run: the subnets of the settings, otherwise those of the VPC, if any."""
    if settings.emr_subnet_ids:
        return emr.CfnApplication.NetworkConfigurationProperty(
            subnet_ids=list(settings.emr_subnet_ids), security_group_ids=list(settings.emr_security_group_ids)
        )
    if network is None:
        return None
    return emr.CfnApplication.NetworkConfigurationProperty(
        subnet_ids=list(network.vpc.subnet_ids), security_group_ids=[network.groups.workers.security_group_id]
    )


def _inside(network: NetworkStack | None) -> FunctionNetwork | None:
    if network is None:
        return None
    return FunctionNetwork(network.vpc.subnet_ids, (network.groups.workers.security_group_id,))


def _front_of(network: NetworkStack | None) -> dict[str, Any]:
    """Return the Resources by which the authorizer believes the load balancer's headers."""
    if network is None or network.front is None:
        return {}
    return {"client_certificate_source": "alb", "client_vpc_endpoints": network.front.endpoint.id}


def revocation_list_arns(stack: Stack, settings: Settings, truststore: s3.IBucket) -> tuple[str, ...]:
    if not settings.revocation_lists:
        return ()  # a reference to the bucket's name would tie the stacks together for nothing
    urls = settings.revocation_urls(truststore.bucket_name)
    objects = [url.removeprefix("s3://").partition("/") for url in urls]
    return tuple(
        stack.format_arn(service="s3", region="", account="", resource=bucket, resource_name=key)
        for bucket, _, key in objects
    )


def _revocation(settings: Settings, data: DataStack) -> dict[str, Any]:
    """Return the Resources about revocation lists in S3; none without such lists."""
    if not settings.revocation_lists:
        return dict.fromkeys(("revocation_lists", "revocation_outdated", "revocation_max_age_seconds"))
    return {
        "revocation_lists": ",".join(settings.revocation_urls(data.buckets.truststore.bucket_name)),
        "revocation_outdated": settings.revocation_outdated,
        "revocation_max_age_seconds": settings.revocation_max_age_seconds,
    }


def _resources(
    settings: Settings, data: DataStack, dispatch: SqsQueues, spark: SparkApplication, machine_arn: str
) -> Resources:
    given = {name: getattr(settings, name) for name in VARIABLES if name in Settings.model_fields}
    texts = {
        name: (";" if name == "operator_subjects" else ",").join(value) or None if isinstance(value, tuple) else value
        for name, value in given.items()
    }
    return Resources(
        **{
            **texts,
            **_revocation(settings, data),
            "service_name": service_name(settings.stage),
            "tasks_table": data.tables.tasks.table_name,
            "idempotency_table": data.tables.idempotency.table_name,
            "references_table": data.tables.references.table_name,
            "tombstones_table": data.tombstones.table_name if settings.gateway else None,
            "queue_url": dispatch.queue.queue_url,
            "callback_keys_arn": data.grants.callback_keys_arn,
            "state_machine_arn": machine_arn,
            "plan_bucket": data.buckets.plans.bucket_name,
            "polaris_secret_arn": data.grants.polaris_secret_arn,
            "emr_application_id": spark.application_id,
            "emr_job_role_arn": spark.job_role.role_arn,
            "emr_entry_point": spark.entry_point,
            "emr_spark_parameters": spark.spark_parameters,
            "emr_jars": ",".join(settings.emr_jars),
            "probe_url": f"https://{settings.domain_name}/{BASE_PATH}",
            "spark": "on" if settings.has_spark else "off",
            "tracing": True,
        }
    )
